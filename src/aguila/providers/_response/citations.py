"""Citations: the URLs, files and passages that a model's text is based on.

Response readers find them, ``turn_record`` sends them in the message's metadata (``metadata["aguila"]["citations"]``),
and ``history`` reads them from there. Providers differ, so a citation has the few members that a user interface needs,
and the provider's own object.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from aguila.chat import TextContent
from aguila.codec.json.values import is_array, is_object

CITATIONS = "citations"
"""The additional property with the citations of a text. Their positions count from the start of the answer."""


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The source of a range of text, or of the whole text if it has no position. Positions count Unicode characters."""

    source: dict[str, Any]
    provider: str = ""
    start: int | None = None
    end: int | None = None
    url: str | None = None
    title: str | None = None
    text: str | None = None

    def within(self, start: int, length: int) -> Citation:
        """Return the citation with its position relative to a range of the text."""
        if self.start is None or self.end is None:
            return self
        begins = min(max(self.start - start, 0), length)
        ends = min(max(self.end - start, begins), length)
        return msgspec.structs.replace(self, start=begins, end=ends)


def citations_of(content: TextContent) -> list[Citation]:
    """Return the citations of a text."""
    return cast("list[Citation]", content.additional_properties.get(CITATIONS, []))


def read_citations(value: object) -> list[Citation]:
    """Read citations from metadata. Invalid ones are skipped."""
    found: list[Citation] = []
    for one in value if is_array(value) else ():
        try:
            found.append(msgspec.convert(one, Citation))
        except msgspec.ValidationError:
            continue
    return found


def split_by_citations(text: str, citations: Iterable[Citation]) -> list[tuple[str, list[Citation]]]:
    """Split a text where citations start and end. No piece is blank, unless the whole text is.

    Citations without a position, and those that overlap an earlier one, are skipped.
    """
    places: dict[tuple[int, int], list[Citation]] = {}
    for one in citations:
        if one.start is not None and one.end is not None and text[one.start : one.end].strip() != "":
            places.setdefault((one.start, one.end), []).append(one)
    pieces: list[tuple[str, list[Citation]]] = []
    at = 0
    for (start, end), its in sorted(places.items(), key=lambda place: place[0]):
        if start >= at:
            pieces += [(text[at:start], []), (text[start:end], its)]
            at = end
    made: list[tuple[str, list[Citation]]] = []
    before = ""
    for piece, its in [*pieces, (text[at:], [])]:
        if piece.strip() != "":
            made.append((before + piece, its))
            before = ""
        elif made:
            made[-1] = (made[-1][0] + piece, made[-1][1])
        else:
            before = piece
    return made or [(text, [])]


def texts(**members: Any) -> dict[str, Any]:
    """Return the members that are non-empty strings."""
    return {name: value for name, value in members.items() if isinstance(value, str) and value != ""}


def read_position(source: Any, begins: int = 0) -> dict[str, Any]:
    """Return the position in a provider's object, shifted by the text before; empty if it has none."""
    start, end = member(source, "start_index"), member(source, "end_index")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        return {}
    return {"start": begins + start, "end": begins + end}


def member(source: Any, name: str) -> Any:
    """Return a member of an SDK value, which is an object or a dict."""
    return source.get(name) if is_object(source) else getattr(source, name, None)


def listed(source: Any, name: str) -> list[Any]:
    """Return a list member, or an empty list."""
    value = member(source, name)
    return value if is_array(value) else []


def plain(source: Any) -> dict[str, Any]:
    """Convert an SDK value to JSON."""
    dump = getattr(source, "model_dump", None)
    whole: Any = source if dump is None else dump(mode="json", exclude_none=True)
    return whole if is_object(whole) else {}
