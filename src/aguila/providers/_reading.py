"""Layer: providers. What an SDK streams, read to its end, whichever end that is.

Below: ``_failure``, ``_prompt``. Above: ``updates`` of every provider, whose reader knows the provider's events. Tokens
that were told of are paid for, also where the stream breaks off (USE-1, P27): who reads on gets them at the end or with
the error, and who stops in the middle has them so far, as a property of the updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from typing import Any

from aguila.chat import ChatUpdate, Content, TextContent, UsageContent
from aguila.codec.notice import Notice, log_notice
from aguila.offload import offload
from aguila.protocol import TokenUsage, replace
from aguila.providers._citations import CITATIONS, Citation
from aguila.providers._failure import stream_failure_of
from aguila.providers._prompt import View

FINISH_REASON = "finish_reason"
"""The additional property of an update that tells why the model stopped."""
USAGE_SO_FAR = "usage_so_far"
"""The additional property of an update that has the usage of this answer until now: each takes the former's place."""


class Reader(ABC):
    """Reads the events of one answer of a provider. ``view`` is the request's, to read the names of tools by."""

    def __init__(self, model: str, provider: str, view: View | None) -> None:
        self.usage: TokenUsage | None = None
        """What was used, as far as the provider has said: another object whenever that changes."""
        self.finish: str | None = None
        """Why the model stopped, once the provider has said so."""
        self._model = model
        self._provider = provider
        self._view = view
        self._said = 0
        self._left_out: set[str] = set()

    def is_slow(self, event: Any, /) -> bool:
        """Whether an event may hold something large, so that it is to be read apart from the event loop."""
        return False

    @abstractmethod
    def read(self, event: Any, /) -> ChatUpdate | None:
        """What an event adds, or None. Raises ``RunFailed`` for an error that it tells of."""

    def _own_name(self, name: str) -> str:
        """The name that a tool has here, of the one that the provider was told."""
        return name if self._view is None else self._view.own_name(name)

    def _text(self, text: str, **properties: Any) -> TextContent:
        """More of the text, which is counted: citations say where in it they belong."""
        self._said += len(text)
        return TextContent(text, additional_properties=properties)

    def _cite(self, *citations: Citation) -> list[Content]:
        """Contents that say nothing new and cite something, if there is anything to cite."""
        return [TextContent("", additional_properties={CITATIONS: list(citations)})] if citations else []

    def _leave_out(self, what: str, how: str) -> None:
        """Say once what becomes of something that the model answered with and nobody is shown."""
        if what not in self._left_out:
            self._left_out.add(what)
            log_notice(Notice(rule="providers", message=f"the model answered with {what!r}: {how}"))


async def read_stream(stream: AsyncIterable[Any], reader: Reader) -> AsyncIterator[ChatUpdate]:
    """Chat updates for the events of a stream, the last with usage and finish reason.

    Raises ``RunFailed``, after an update with the usage, for a stream that breaks off or tells of an error.
    """
    known: TokenUsage | None = None
    try:
        async for event in stream:
            update = await offload(reader.read, event) if reader.is_slow(event) else reader.read(event)
            if reader.usage is not known:
                known = reader.usage
                before = ChatUpdate() if update is None else update
                properties = {**before.additional_properties, USAGE_SO_FAR: known}
                update = replace(before, additional_properties=properties)
            if update is not None:
                yield update
    except Exception as error:
        if reader.usage is not None:
            yield ChatUpdate(contents=[UsageContent(reader.usage)])
        failure = stream_failure_of(error)
        if failure is None or failure is error:
            raise
        raise failure from error
    contents: list[Content] = [] if reader.usage is None else [UsageContent(reader.usage)]
    properties = {} if reader.finish is None else {FINISH_REASON: reader.finish}
    yield ChatUpdate(contents=contents, additional_properties=properties)


def known_finish(known: Mapping[str, str], reason: str) -> str:
    """What a provider's reason to stop means here: ``other``, with a notice, if it is not known."""
    if reason not in known:
        log_notice(Notice(rule="providers", message=f"the model stopped for the reason {reason!r}, which is not known"))
    return known.get(reason, "other")
