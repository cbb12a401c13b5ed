"""Detect dead owners: each process locks one byte of a file, and the kernel drops the locks of a process that dies.

The file is ``<database>-lock``; it is empty. The offset of the byte is a hash of the owner's name. The lock is shared,
so that several stores can use the same name. It belongs to the open file, so that the stores of one process keep their
locks separate. A process that is suspended keeps its locks; its runs are taken over when their leases expire.

Each run stores the inode of the lock file if its owner held its lock. If the platform or the file system has no such
locks, or the lock file was replaced (deleted, or the database was copied), only the lease decides. The lock file is
never deleted here: a process that has the old file open would not see the locks in a new one.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import struct
import sys
import weakref
from hashlib import sha256
from pathlib import Path

_log = logging.getLogger("aguila.store")

if sys.platform == "linux":
    import fcntl

    # struct flock: type, whence, start, length, process.
    _FLOCK = struct.Struct("hhqqi0q")

    def _lock_shared(file: int, offset: int) -> None:
        """Take a shared lock on a byte. Raises ``OSError``."""
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, offset, 1, 0))

    def _is_locked(file: int, offset: int) -> bool:
        """Return whether another open file has locked a byte. Raises ``OSError``."""
        query = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, offset, 1, 0)
        return _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, query))[0] != fcntl.F_UNLCK

else:

    def _lock_shared(file: int, offset: int) -> None:
        raise OSError(errno.ENOTSUP, "owner locks need Linux")

    def _is_locked(file: int, offset: int) -> bool:
        raise OSError(errno.ENOTSUP, "owner locks need Linux")


class OwnerLocks:
    """The locks of one store. Call ``hold`` from one thread only; ``is_dead`` may be called from any."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-lock")
        self._file: int | None = None
        self._inode: str | None = None
        self._held: set[str] = set()

    def open(self) -> None:
        """Open the lock file and lock the owners from before ``close`` again. If this fails, no owner is ever dead."""
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
            self._inode = str(os.fstat(self._file).st_ino)
            _is_locked(self._file, 0)
            for owner in self._held:
                _lock_shared(self._file, _offset(owner))
        except OSError as error:
            _log.info("owner locks are not available, dead owners are found by their leases only: %s", error)
            self.close()
        else:
            _opened.add(self)

    def close(self) -> None:
        """Release all locks."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # the application may have closed all files, as daemons do
                os.close(file)

    def hold(self, owner: str) -> str | None:
        """Lock the byte of an owner until ``close``; return the inode to store, or None if it cannot be locked."""
        if self._file is None:
            return None
        if owner not in self._held:
            try:
                _lock_shared(self._file, _offset(owner))
            except OSError as error:
                _log.info("cannot lock owner %s: %s", owner, error)
                return None
            self._held.add(owner)
        return self._inode

    def is_dead(self, owner: str, inode: str | None) -> bool:
        """Return whether an owner is known to be dead. ``inode`` is what ``hold`` returned to it."""
        if self._file is None or inode is None or inode != self._inode or owner in self._held:
            return False
        try:
            return not _is_locked(self._file, _offset(owner))
        except OSError as error:
            _log.info("cannot test the lock of owner %s: %s", owner, error)
            return False


def _offset(owner: str) -> int:
    return int.from_bytes(sha256(owner.encode(errors="surrogatepass")).digest()[:8], "big") >> 2


_opened: weakref.WeakSet[OwnerLocks] = weakref.WeakSet()


def _release_after_fork() -> None:
    # A child inherits the open files, and would keep the locks of a parent that dies.
    for locks in list(_opened):
        locks.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_after_fork)
