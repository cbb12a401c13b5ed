"""Layer: codec. Bytes that come in pieces as one object, without holding them twice.

Below: the standard library. Above: whoever reads bodies, rows and files that can be large.
"""

from __future__ import annotations

from io import BytesIO


class PresizedBuffer(BytesIO):
    """Takes pieces with ``write``; ``getvalue`` then gives away what it holds, where joining would copy all of it.

    Made with the size that is to come, which may be None. If that is right the memory is asked for once: to grow, an
    allocator often has to copy, and holds both for that moment. Nothing of it is touched before it is written to: to
    have megabytes of fresh pages at once takes tens of milliseconds, and the event loop makes these objects.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__(b"" if size is None else bytes(size))
        self._size = size

    def getvalue(self) -> bytes:
        """All that was written."""
        if self._size is not None and self.tell() != self._size:
            self.truncate()
        return super().getvalue()
