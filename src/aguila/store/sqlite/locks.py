"""Layer: store. Which owners of runs are gone: each holds a lock, and the kernel drops the locks of who dies.

The lock is a byte of the empty file ``<database>-lock``, at a place made from the owner's name, shared by whoever uses
that name. It belongs to the open file and not to the process, so that several stores of one process do not let go of
each other's. A process that is only stopped keeps its locks: its lease alone says when it has been away for too long.

What is known is noted with each run: the number of the lock file, if its owner held its lock when it began. Where
there are no such locks (another platform, a file system that refuses them), or when the file is not the same one any
more (it was deleted, the database was copied), nothing is known, and the lease decides. The file is never deleted
here: who has it open would not see who locks the next one.
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

    def _share(file: int, at: int) -> None:
        """Lock a byte together with others. Raises ``OSError``."""
        fcntl.fcntl(file, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, at, 1, 0))

    def _is_locked(file: int, at: int) -> bool:
        """Whether somebody else has locked a byte. Raises ``OSError``."""
        asked = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, at, 1, 0)
        return _FLOCK.unpack(fcntl.fcntl(file, fcntl.F_OFD_GETLK, asked))[0] != fcntl.F_UNLCK

else:

    def _share(file: int, at: int) -> None:
        raise OSError(errno.ENOTSUP, "locks of open files are known of Linux only")

    def _is_locked(file: int, at: int) -> bool:
        raise OSError(errno.ENOTSUP, "locks of open files are known of Linux only")


class Owners:
    """The locks of one store. ``hold`` is for one thread; ``is_gone`` may be asked on any, while it is open."""

    def __init__(self, path: Path) -> None:
        self._path = path.with_name(path.name + "-lock")
        self._file: int | None = None
        self._number: int | None = None
        self._held: set[str] = set()

    def open(self) -> None:
        """Begin to hold locks, also for owners from before ``close``. Where it cannot be done nobody is ever gone."""
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_CLOEXEC, 0o644)
            self._number = os.fstat(self._file).st_ino & 2**63 - 1  # what SQLite can hold of it
            _is_locked(self._file, 0)
            for owner in self._held:
                _share(self._file, _place(owner))
        except OSError as error:
            _log.info("no locks, so leases alone say who is gone: %s", error)
            self.close()
        else:
            _opened.add(self)

    def close(self) -> None:
        """Let go of all locks."""
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):  # as when somebody has closed all files, to become a daemon
                os.close(file)

    def hold(self, owner: str) -> int | None:
        """Show that an owner is there, for as long as this is open; gives what to note, None if it cannot be shown."""
        if self._file is None:
            return None
        if owner not in self._held:
            try:
                _share(self._file, _place(owner))
            except OSError as error:
                _log.info("owner %s has no lock: %s", owner, error)
                return None
            self._held.add(owner)
        return self._number

    def is_gone(self, owner: str, noted: int | None) -> bool:
        """Whether it is known that an owner, of whom ``hold`` gave this, is there no more."""
        if self._file is None or noted is None or noted != self._number or owner in self._held:
            return False
        try:
            return not _is_locked(self._file, _place(owner))
        except OSError as error:
            _log.info("whether owner %s has a lock is not known: %s", owner, error)
            return False


def _place(owner: str) -> int:
    return int.from_bytes(sha256(owner.encode(errors="surrogatepass")).digest()[:8], "big") >> 2


_opened: weakref.WeakSet[Owners] = weakref.WeakSet()


def _let_go() -> None:
    # A forked process has the same open files: it would keep the locks of a parent that dies.
    for owners in list(_opened):
        owners.close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_let_go)
