"""Serve downloads: status, headers and ranges.

The media type of a file comes from its uploader, so a download does not trust it. A browser must neither guess another
type (``nosniff``) nor run the file in our origin (``sandbox``). Types that may contain scripts are sent as attachments.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import quote

from aguila.server.config.errors import Rejected
from aguila.server.http.request import Request, matches_etag
from aguila.server.http.responses import header_list
from aguila.store import FileRecord

_ONE_RANGE: Final = re.compile(r"bytes\s*=\s*(\d{0,18})\s*-\s*(\d{0,18})", re.ASCII | re.IGNORECASE)

_INLINE_TYPES: Final = re.compile(
    r"image/(png|jpeg|gif|webp|avif|bmp)|(audio|video)/(?!.*(xml|html|svg|script))[a-z0-9.-]+|text/plain"
)
"""The media types that a browser may show: none of them can contain a script."""


def file_response(file: FileRecord, request: Request) -> tuple[int, list[tuple[bytes, bytes]], range]:
    """Return status, headers and bytes of a download: the whole file, one range, or 304 for a cached file.

    A request for several ranges gets the whole file. Raises ``Rejected`` (416) for a range outside the file.
    """
    etag = f'"{file.file_id}"'
    # The id is a hash of the content, so the content never changes. But other callers may not see it.
    headers = {"cache-control": "private, max-age=31536000, immutable", "etag": etag}
    if matches_etag(request, etag):
        return 304, header_list(headers), range(0)
    is_inline = _INLINE_TYPES.fullmatch(file.media_type) is not None
    # Without a charset a browser would guess one.
    media_type = "text/plain; charset=utf-8" if file.media_type == "text/plain" else file.media_type
    status, sent = 200, range(file.size)
    wanted = _parse_range(request, etag, file.size)
    if wanted is not None:
        status, sent = 206, wanted
        headers["content-range"] = f"bytes {wanted.start}-{wanted.stop - 1}/{file.size}"
    headers |= {
        "content-type": media_type,
        "content-length": str(len(sent)),
        "content-disposition": _disposition("inline" if is_inline else "attachment", file.filename),
        "x-content-type-options": "nosniff",
        "content-security-policy": "default-src 'none'; sandbox",
        "cross-origin-resource-policy": "same-site",
        "accept-ranges": "bytes",
    }
    return status, header_list(headers), sent


def _parse_range(request: Request, etag: str, size: int) -> range | None:
    """Return the requested range; None for the whole file."""
    found = _ONE_RANGE.fullmatch(request.headers.get("range", "").strip())
    if found is None or request.method != "GET" or request.headers.get("if-range", etag) != etag:
        return None
    first, last = found.groups()
    if first == "" and last == "":
        return None
    if first == "":  # a suffix range: the last bytes of the file
        wanted = range(max(0, size - int(last)), size)
    else:
        end = size if last == "" else min(int(last) + 1, size)
        if last != "" and int(last) < int(first):
            return None
        wanted = range(int(first), end)
    if len(wanted) == 0:
        message = f"the range is outside the file, which has {size} bytes"
        raise Rejected(416, "range_not_satisfiable", message, headers={"content-range": f"bytes */{size}"})
    return wanted


def _disposition(kind: str, filename: str | None) -> str:
    if filename is None:
        return kind
    plain = re.sub(r'[^\x20-\x7e]|["\\%]', "_", filename)
    return f"{kind}; filename=\"{plain}\"; filename*=UTF-8''{quote(filename, safe='')}"
