"""Layer: providers. What a model says that its text rests on: addresses, files, passages.

Below: msgspec. Above: readers of answers, which find citations, ``_turn``, which tells them in the metadata of the
message that they are about (``metadata["aguila"]["citations"]``), and ``_said``, which reads them there. Providers
agree on little; so a citation has the few members that a user interface needs, and the provider's own object whole.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, cast

import msgspec

from aguila.chat import TextContent
from aguila.codec.values import is_array, is_object

CITATIONS = "citations"
"""The additional property of a text that has its citations; their places are in all that the answer has said."""


class Citation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a stretch of text rests on; of all of it if it has no place. Places are counted in Unicode characters."""

    source: dict[str, Any]
    provider: str = ""
    start: int | None = None
    end: int | None = None
    url: str | None = None
    title: str | None = None
    text: str | None = None

    def within(self, start: int, length: int) -> Citation:
        """The same with its place in a stretch of the text that begins and ends there."""
        if self.start is None or self.end is None:
            return self
        begins = min(max(self.start - start, 0), length)
        ends = min(max(self.end - start, begins), length)
        return msgspec.structs.replace(self, start=begins, end=ends)


def citations_of(content: TextContent) -> list[Citation]:
    """The citations of a text."""
    return cast("list[Citation]", content.additional_properties.get(CITATIONS, []))


def read_citations(value: object) -> list[Citation]:
    """Citations out of metadata; what is none is left out."""
    found: list[Citation] = []
    for one in value if is_array(value) else ():
        try:
            found.append(msgspec.convert(one, Citation))
        except msgspec.ValidationError:
            continue
    return found


def stretches(text: str, citations: Iterable[Citation]) -> list[tuple[str, list[Citation]]]:
    """A text cut where citations begin and end, none of the pieces blank unless all of it is.

    Citations without a place, and those that overlap with one before, are left out.
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
    """Those of some members that are texts and say something."""
    return {name: value for name, value in members.items() if isinstance(value, str) and value != ""}


def place_of(source: Any, begins: int = 0) -> dict[str, Any]:
    """The place that a provider's object names, in a text before which so much was said; empty if it names none."""
    start, end = member(source, "start_index"), member(source, "end_index")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        return {}
    return {"start": begins + start, "end": begins + end}


def member(source: Any, name: str) -> Any:
    """A member of what an SDK gives: an object, or a dict where its types know nothing better."""
    return source.get(name) if is_object(source) else getattr(source, name, None)


def listed(source: Any, name: str) -> list[Any]:
    """A member that is a list; an empty one if it is none."""
    value = member(source, name)
    return value if is_array(value) else []


def plain(source: Any) -> dict[str, Any]:
    """What an SDK gives as JSON."""
    dump = getattr(source, "model_dump", None)
    whole: Any = source if dump is None else dump(mode="json", exclude_none=True)
    return whole if is_object(whole) else {}
