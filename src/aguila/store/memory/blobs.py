"""The files of the memory store, and the threads that hold each of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from aguila.store import refusals
from aguila.store.archives.thread_archive import ArchivedFile, FileArchive
from aguila.store.feed import ThreadKey
from aguila.store.records import Blob
from aguila.store.run_inputs import is_inline


class _File:
    """A file and the threads that hold it. ``is_kept`` if it was also stored without a thread."""

    __slots__ = ("blob", "data", "is_kept", "threads")

    def __init__(self, blob: Blob, data: bytes) -> None:
        self.blob = blob
        self.data = data
        self.is_kept = False
        self.threads: set[ThreadKey] = set()

    def archive(self) -> ArchivedFile:
        """Return the file as an archive holds it."""
        return ArchivedFile(blob=self.blob, data=self.data, is_kept=self.is_kept)


class Blobs:
    """All files of a store, their total size in ``bytes``, and the number of ``uploads``: files that are not inline."""

    def __init__(self) -> None:
        self.bytes = 0
        self.uploads = 0
        self._usage: dict[str, tuple[int, int]] = {}  # scope -> number of its uploads, bytes of its files
        self._files: dict[ThreadKey, _File] = {}
        self._held: dict[ThreadKey, set[str]] = {}  # thread -> its files; a file may be stored before its thread exists

    def usage(self, scope: str) -> tuple[int, int]:
        """Return the number of uploads of a scope, and the bytes of all its files."""
        return self._usage.get(scope, (0, 0))

    def _count(self, scope: str, file: _File, sign: int) -> None:
        """Count a file that was added (1) or removed (-1)."""
        size, uploads = sign * len(file.data), 0 if is_inline(file.blob.blob_id) else sign
        self.bytes += size
        self.uploads += uploads
        count, used = self.usage(scope)
        self._usage[scope] = (count + uploads, used + size)
        if self._usage[scope] == (0, 0):
            del self._usage[scope]

    def has(self, scope: str, blob_id: str) -> bool:
        """Return whether the file exists."""
        return (scope, blob_id) in self._files

    def get(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """Return a file with its content. Raises ``NotFound``."""
        file = self._files.get((scope, blob_id))
        if file is None:
            raise refusals.no_blob(blob_id)
        return file.blob, file.data

    def add(self, scope: str, blob: Blob, data: bytes) -> None:
        """Store a new file."""
        file = self._files[scope, blob.blob_id] = _File(blob, data)
        self._count(scope, file, 1)

    def hold(self, scope: str, blob_id: str, thread_id: str | None) -> Blob:
        """Let a thread hold a file; without a thread, keep the file until it is deleted."""
        file = self._files[scope, blob_id]
        if thread_id is None:
            file.is_kept = True
        else:
            file.threads.add((scope, thread_id))
            self._held.setdefault((scope, thread_id), set()).add(blob_id)
        return file.blob

    def delete(self, scope: str, blob_id: str) -> None:
        """Remove a file, even if threads hold it. Raises ``NotFound``."""
        self.get(scope, blob_id)
        file = self._files.pop((scope, blob_id))
        self._count(scope, file, -1)
        for key in file.threads:
            self._held[key].discard(blob_id)

    def bytes_held(self, threads: Iterable[ThreadKey]) -> int:
        """Return the total size of the files that these threads hold, each counted once."""
        held = {(key[0], blob_id) for key in threads for blob_id in self._held.get(key, ())}
        return sum(len(self._files[key].data) for key in held)

    def without_thread(self, threads: Container[ThreadKey]) -> Iterator[tuple[str, Blob]]:
        """Iterate over (scope, file) of the files that none of these threads holds, oldest first."""
        for (scope, _), file in list(self._files.items()):
            if not any(key in threads for key in file.threads):
                yield scope, file.blob

    def has_files(self, thread: ThreadKey) -> bool:
        """Return whether a thread holds files."""
        return bool(self._held.get(thread))

    def release(self, thread: ThreadKey) -> None:
        """Remove the files of a removed thread, except those that other threads hold or that are kept."""
        scope = thread[0]
        for blob_id in self._held.pop(thread, ()):
            file = self._files[scope, blob_id]
            file.threads.discard(thread)
            if not file.threads and not file.is_kept:
                del self._files[scope, blob_id]
                self._count(scope, file, -1)

    # Archives

    def archive(self, thread: ThreadKey) -> list[ArchivedFile]:
        """Return the files of a thread, ordered by their ids."""
        scope = thread[0]
        return [self._files[scope, blob_id].archive() for blob_id in sorted(self._held.get(thread, ()))]

    def archive_rest(self, threads: Container[ThreadKey]) -> list[FileArchive]:
        """Return each file that is held by a thread other than these, or by none."""
        found: list[FileArchive] = []
        for (scope, _), file in self._files.items():
            holders = [key[1] for key in sorted(file.threads) if key not in threads] if file.threads else [None]
            found += [FileArchive(scope=scope, thread_id=holder, file=file.archive()) for holder in holders]
        return found

    def restore(self, scope: str, file: ArchivedFile, thread_id: str | None) -> None:
        """Store an archived file unless it is stored, and let the thread hold it."""
        if not self.has(scope, file.blob.blob_id):
            self.add(scope, file.blob, file.data)
        self.hold(scope, file.blob.blob_id, thread_id)
        if file.is_kept:
            self.hold(scope, file.blob.blob_id, None)
