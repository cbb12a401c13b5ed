"""Read an SDK's stream to its end, whatever the end is.

Reported tokens are paid for, also if the stream breaks off (USE-1). A caller that reads to the end gets the usage
with the last update or with the error. A caller that stops earlier has the usage so far, as a property of the updates.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncIterable, AsyncIterator, Callable, Mapping
from typing import Any, Protocol

from aguila.chat import ChatUpdate, Content, TextContent, UsageContent
from aguila.codec.notices import Notice, log_notice
from aguila.offload import offload
from aguila.protocol import TokenUsage, replace
from aguila.providers._request.prompt import ProviderView
from aguila.providers._response.citations import CITATIONS, Citation
from aguila.providers._response.errors import make_stream_failure

FINISH_REASON = "finish_reason"
"""The additional property of an update with the finish reason."""
USAGE_SO_FAR = "usage_so_far"
"""The additional property of an update with the usage so far. It replaces that of earlier updates."""


class Reader(ABC):
    """Read the events of one answer. ``view`` is that of the request, to restore the names of tools."""

    def __init__(self, model: str, provider: str, view: ProviderView | None) -> None:
        self.usage: TokenUsage | None = None
        """The usage reported so far: a new object whenever it changes."""
        self.finish: str | None = None
        """The finish reason, once reported."""
        self._model = model
        self._provider = provider
        self._view = view
        self._said = 0
        self._left_out: set[str] = set()

    def is_slow(self, event: Any, /) -> bool:
        """Return whether an event may be large, so that it is read outside the event loop."""
        return False

    @abstractmethod
    def read(self, event: Any, /) -> ChatUpdate | None:
        """Convert an event to an update, or None. Raises ``RunFailed`` for an error event."""

    def _own_name(self, name: str) -> str:
        """Return our name of a tool for the provider's name."""
        return name if self._view is None else self._view.own_name(name)

    def _text(self, text: str, **properties: Any) -> TextContent:
        """Make a text content, and count its length for the positions of citations."""
        self._said += len(text)
        return TextContent(text, additional_properties=properties)

    def _cite(self, *citations: Citation) -> list[Content]:
        """Make an empty text with these citations, if there are any."""
        return [TextContent("", additional_properties={CITATIONS: list(citations)})] if citations else []

    def _warn_dropped(self, what: str, how: str) -> None:
        """Warn once about output of the model that is not shown."""
        if what not in self._left_out:
            self._left_out.add(what)
            log_notice(Notice(rule="providers", message=f"the model returned {what!r}: {how}"))


class Updates(Protocol):
    """The function of a provider that converts a stream to chat updates."""

    def __call__(
        self, stream: AsyncIterable[Any], *, model: str, provider: str = ..., view: ProviderView | None = None
    ) -> AsyncIterator[ChatUpdate]:
        """Convert the events of a stream to chat updates."""
        ...


async def read_stream(stream: AsyncIterable[Any], reader: Reader) -> AsyncIterator[ChatUpdate]:
    """Convert the events of a stream to chat updates. The last one has the usage and the finish reason.

    Raises ``RunFailed``, after an update with the usage, if the stream breaks off or reports an error.
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
        failure = make_stream_failure(error)
        if failure is None or failure is error:
            raise
        raise failure from error
    contents: list[Content] = [] if reader.usage is None else [UsageContent(reader.usage)]
    properties = {} if reader.finish is None else {FINISH_REASON: reader.finish}
    yield ChatUpdate(contents=contents, additional_properties=properties)


def make_updates(reader: Callable[[str, str, ProviderView | None], Reader], default_provider: str) -> Updates:
    """Make the ``updates`` function of a provider from its reader."""

    def updates(
        stream: AsyncIterable[Any], *, model: str, provider: str = default_provider, view: ProviderView | None = None
    ) -> AsyncIterator[ChatUpdate]:
        """Convert the events of a stream to chat updates. ``view`` is that of the request, to restore tool names.

        Raises ``RunFailed`` if the stream breaks off or reports an error.
        """
        return read_stream(stream, reader(model, provider, view))

    return updates


def known_finish(known: Mapping[str, str], reason: str) -> str:
    """Map a provider's finish reason to ours; ``other``, with a notice, if it is unknown."""
    if reason not in known:
        log_notice(Notice(rule="providers", message=f"the model stopped for the unknown reason {reason!r}"))
    return known.get(reason, "other")
