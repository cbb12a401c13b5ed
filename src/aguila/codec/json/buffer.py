"""A buffer for large bytes that arrive in pieces."""

from __future__ import annotations

from io import BytesIO


class PresizedBuffer(BytesIO):
    """Collects pieces with ``write``. ``getvalue`` returns the memory itself, where joining pieces would copy it.

    ``size`` is the expected size. If it is right, the memory is allocated once: growing would often copy it and hold
    both copies. The pages are not touched before they are written, because touching megabytes of fresh pages at once
    would block the event loop for tens of milliseconds.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__(b"" if size is None else bytes(size))
        self._size = size

    def getvalue(self) -> bytes:
        """Return everything that was written."""
        if self._size is not None and self.tell() != self._size:
            self.truncate()
        return super().getvalue()
