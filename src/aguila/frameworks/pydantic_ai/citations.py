"""Citations: the pages, files and passages that a model's text is based on, in ``metadata["aguila"]["citations"]``."""

from __future__ import annotations

from typing import Any

from pydantic_ai.messages import TextPart, WebCitationSource
from pydantic_core import to_jsonable_python


def citations_of(part: TextPart, offset: int) -> list[dict[str, Any]]:
    """Return the citations of a text that begins at ``offset`` in its message. Positions count Unicode characters."""
    found: list[dict[str, Any]] = []
    for citation in part.citations or ():
        place = citation.anchor
        position = {} if place is None else {"start": offset + place.start, "end": offset + place.end}
        for source in citation.sources:
            url = source.url if isinstance(source, WebCitationSource) else None
            known = {"url": url, "title": source.title, "text": "\n".join(source.excerpts) or None}
            found.append(
                {
                    "source": to_jsonable_python(source),
                    "provider": part.provider_name or "",
                    **position,
                    **{name: value for name, value in known.items() if value is not None},
                }
            )
    return found
