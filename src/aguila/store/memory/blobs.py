"""Layer: store. The files of the store in memory, and who holds each of them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator

from aguila.errors import NotFound
from aguila.store.base import Blob
from aguila.store.feed import Key


class _File:
    """A file and who holds it: the threads it goes away with, or nobody (``is_kept``)."""

    __slots__ = ("blob", "data", "is_kept", "threads")

    def __init__(self, blob: Blob, data: bytes) -> None:
        self.blob = blob
        self.data = data
        self.is_kept = False
        self.threads: set[Key] = set()


class Files:
    """All files of a store. ``bytes`` is what they come to."""

    def __init__(self) -> None:
        self.bytes = 0
        self._files: dict[Key, _File] = {}
        self._held: dict[Key, set[str]] = {}  # thread -> the files it holds; a file may come before its thread

    def clear(self) -> None:
        """Forget everything."""
        self.bytes = 0
        self._files.clear()
        self._held.clear()

    def has(self, scope: str, blob_id: str) -> bool:
        """Whether there is such a file."""
        return (scope, blob_id) in self._files

    def get(self, scope: str, blob_id: str) -> tuple[Blob, bytes]:
        """A file with its content. Raises ``NotFound``."""
        file = self._files.get((scope, blob_id))
        if file is None:
            raise NotFound(f"no file {blob_id!r}")
        return file.blob, file.data

    def add(self, scope: str, blob: Blob, data: bytes) -> None:
        """Store a file that is not there."""
        self._files[scope, blob.blob_id] = _File(blob, data)
        self.bytes += len(data)

    def hold(self, scope: str, blob_id: str, thread_id: str | None) -> Blob:
        """Have a thread hold a file, or keep it whatever becomes of threads."""
        file = self._files[scope, blob_id]
        if thread_id is None:
            file.is_kept = True
        else:
            file.threads.add((scope, thread_id))
            self._held.setdefault((scope, thread_id), set()).add(blob_id)
        return file.blob

    def delete(self, scope: str, blob_id: str) -> None:
        """Remove a file, whoever holds it. Raises ``NotFound``."""
        self.get(scope, blob_id)
        file = self._files.pop((scope, blob_id))
        self.bytes -= len(file.data)
        for key in file.threads:
            self._held[key].discard(blob_id)

    def bytes_held(self, threads: Iterable[Key]) -> int:
        """What the files that some of these threads hold come to, each counted once."""
        held = {(key[0], blob_id) for key in threads for blob_id in self._held.get(key, ())}
        return sum(len(self._files[key].data) for key in held)

    def loose(self, threads: Container[Key]) -> Iterator[tuple[str, Blob]]:
        """The files that none of these threads holds, and their scopes, in the order they came."""
        for (scope, _), file in list(self._files.items()):
            if not any(key in threads for key in file.threads):
                yield scope, file.blob

    def holds(self, thread: Key) -> bool:
        """Whether a thread has files."""
        return bool(self._held.get(thread))

    def release(self, thread: Key) -> None:
        """A thread is removed, and with it what nobody else holds."""
        scope = thread[0]
        for blob_id in self._held.pop(thread, ()):
            file = self._files[scope, blob_id]
            file.threads.discard(thread)
            if not file.threads and not file.is_kept:
                del self._files[scope, blob_id]
                self.bytes -= len(file.data)
