"""Read Gemini's grounding and citation metadata as citations.

Gemini gives positions in UTF-8 bytes, and sources separately from the ranges that use them. Each range becomes one
citation per source. Data about the whole answer, such as the searches and Google's search suggestions, becomes a
citation without a position.
"""

from __future__ import annotations

from typing import Any

from aguila.providers._response.citations import Citation, listed, member, plain, texts


def read_grounding(found: Any, text: str, provider: str) -> list[Citation]:
    """Read the citations in the grounding metadata of an answer with this text."""
    chunks = listed(found, "grounding_chunks")
    citations: list[Citation] = []
    for support in listed(found, "grounding_supports"):
        for index in listed(support, "grounding_chunk_indices"):
            if not 0 <= index < len(chunks):
                continue
            chunk = chunks[index]
            source = {**plain(chunk), "support": plain(support)}
            its = member(chunk, "web") or member(chunk, "retrieved_context") or member(chunk, "maps")
            known = texts(url=member(its, "uri"), title=member(its, "title"), text=member(its, "text"))
            place = _place(member(support, "segment"), text)
            citations.append(Citation(source=source, provider=provider, **place, **known))
    read = ("grounding_chunks", "grounding_supports") if citations else ()
    rest = {name: value for name, value in plain(found).items() if name not in read}
    return [*citations, Citation(source=rest, provider=provider)] if rest else citations


def read_citation_metadata(found: Any, text: str, provider: str) -> list[Citation]:
    """Read the citations in the citation metadata of an answer with this text so far."""
    return [
        Citation(
            source=plain(one),
            provider=provider,
            **_place(one, text),
            **texts(url=member(one, "uri"), title=member(one, "title")),
        )
        for one in listed(found, "citations")
    ]


def _place(segment: Any, text: str) -> dict[str, Any]:
    start, end = member(segment, "start_index") or 0, member(segment, "end_index")
    if type(start) is not int or type(end) is not int or not 0 <= start <= end:
        return {}
    whole = text.encode("utf-8", "surrogatepass")
    return {name: len(whole[:at].decode("utf-8", "ignore")) for name, at in (("start", start), ("end", end))}
