"""Layer: codec. Bytes that come in pieces as one object, without holding them twice.

Below: the standard library. Above: whoever reads bodies, rows and files that can be large.
"""

from __future__ import annotations

from io import BytesIO


class Whole(BytesIO):
    """Takes pieces with ``write``; ``getvalue`` then gives away what it holds, where joining would copy all of it.

    Made with the size that is to come, which may be None. If that is right the memory is asked for once: to grow, an
    allocator often has to copy, and holds both for that moment.
    """

    def __init__(self, size: int | None = None) -> None:
        super().__init__()
        self._size = size
        if size is not None and size > 0:
            self.seek(size - 1)
            self.write(b"\0")
            self.seek(0)

    def getvalue(self) -> bytes:
        """All that was written."""
        if self._size is not None and self.tell() != self._size:
            self.truncate()
        return super().getvalue()
