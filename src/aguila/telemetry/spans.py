"""Spans, named and attributed as OpenTelemetry's conventions for generative AI say.

Import this only through ``load_spans``: it needs the extra ``otel``.
"""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import lru_cache
from hashlib import sha256
from typing import Any, Final
from urllib.parse import urlsplit

from opentelemetry import context as contexts
from opentelemetry import propagate, trace
from opentelemetry.context import Context
from opentelemetry.trace import Span, SpanKind, StatusCode, Tracer, TracerProvider
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from aguila.errors import HTTPRejected, RunFailed
from aguila.protocol import Message, TokenUsage
from aguila.telemetry import NoteResult
from aguila.telemetry.contents import encode_content, encode_messages, has_contents

PROVIDER: Final = "aguila"
"""``gen_ai.provider.name``: who makes these spans. The spans of models name their vendors."""

_USAGE: Final = {
    "input_tokens": "gen_ai.usage.input_tokens",
    "output_tokens": "gen_ai.usage.output_tokens",
    "reasoning_tokens": "gen_ai.usage.reasoning.output_tokens",
    "cached_input_tokens": "gen_ai.usage.cache_read.input_tokens",
    "cache_write_input_tokens": "gen_ai.usage.cache_creation.input_tokens",
}
_traceparent: Final = TraceContextTextMapPropagator()
_FAILURES: Final = ("error", "lost")
"""The outcomes of a run that failed. A lost run is ended by another process."""


def find_spans() -> Spans | None:
    """Return what makes spans with the provider of this process; None if it has set none, or one without effect."""
    provider = trace.get_tracer_provider()
    is_idle = isinstance(provider, trace.ProxyTracerProvider | trace.NoOpTracerProvider)
    return None if is_idle else _spans_of(provider)


@lru_cache(maxsize=1)
def _spans_of(provider: TracerProvider) -> Spans:
    return Spans(provider)


class Spans:
    """Makes the spans of a process."""

    def __init__(self, provider: TracerProvider) -> None:
        self._tracer: Tracer = provider.get_tracer("aguila")

    # Runs

    def of_run(self, headers: Mapping[str, str], *, agent: str, thread_id: str, run_id: str, scope: str) -> RunSpan:
        """Start the span of a run in the server. ``headers`` are those of its request."""
        attributes = {
            **_attributes("invoke_agent", thread_id, run_id),
            "gen_ai.agent.id": agent,
            "gen_ai.agent.name": agent,
            "aguila.scope": scope if os.environ.get("AGUILA_TRACE_SCOPE") == "plain" else _hash(scope),
        }
        parent = _parent_of(headers)
        made = self._tracer.start_span(f"invoke_agent {agent}", parent, SpanKind.INTERNAL, attributes)
        return RunSpan(made, trace.set_span_in_context(made, parent))

    def of_request(self, url: str, *, thread_id: str, run_id: str) -> RunSpan:
        """Start the span of a run in the client. It names the agent if its URL does, as ``.../agents/NAME``."""
        attributes = _attributes("invoke_agent", thread_id, run_id)
        server = urlsplit(url)
        parent, _, agent = server.path.rpartition("/")
        name = "invoke_agent"
        if agent and parent.endswith("/agents"):
            attributes["gen_ai.agent.name"] = agent
            name = f"invoke_agent {agent}"
        if server.hostname is not None:
            attributes["server.address"] = server.hostname
            attributes["server.port"] = server.port or (443 if server.scheme == "https" else 80)
        made = self._tracer.start_span(name, None, SpanKind.CLIENT, attributes)
        return RunSpan(made, trace.set_span_in_context(made))

    # Work

    @contextmanager
    def of_tool(self, name: str, call_id: str, arguments: Mapping[str, Any] | str) -> Generator[NoteResult]:
        """See ``aguila.telemetry.tool_span``."""
        attributes = {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": name,
            "gen_ai.tool.type": "function",
            "gen_ai.tool.call.id": call_id,
        }
        if has_contents():
            attributes["gen_ai.tool.call.arguments"] = encode_content(arguments)
        made = self._tracer.start_span(f"execute_tool {name}", attributes=attributes)

        def note(result: Any, error: str | None) -> None:
            if error is not None:
                _fail(made, "tool_error")
            if has_contents():
                made.set_attribute("gen_ai.tool.call.result", encode_content(result))

        with _Work(made):
            yield note

    def of_work(self, name: str, attributes: Mapping[str, Any]) -> AbstractContextManager[None]:
        """See ``aguila.telemetry.span``."""
        return _Work(self._tracer.start_span(name, attributes=attributes))

    # Contexts

    def current_context(self) -> Context:
        """See ``aguila.telemetry.current_context``."""
        return contexts.get_current()

    def use(self, context: Context) -> AbstractContextManager[None]:
        """See ``aguila.telemetry.use_context``."""
        return _Entered(context)

    def current_ids(self) -> dict[str, str]:
        """See ``aguila.telemetry.trace_fields``."""
        current = trace.get_current_span().get_span_context()
        if not current.is_valid:
            return {}
        return {"trace_id": trace.format_trace_id(current.trace_id), "span_id": trace.format_span_id(current.span_id)}


class RunSpan:
    """The span of a run. It is made when its request arrives, and entered in the task of the run."""

    __slots__ = ("_context", "_span")

    def __init__(self, span: Span, context: Context) -> None:
        self._span = span
        self._context = context

    @property
    def traceparent(self) -> str | None:
        """The span as a ``traceparent`` header; None if it is not recorded."""
        if not self._span.is_recording():
            return None
        own = self._span.get_span_context()
        return f"00-{own.trace_id:032x}-{own.span_id:016x}-{own.trace_flags:02x}"

    def enter(self) -> None:
        """Make the spans of the current task, and of all tasks and threads that it starts, children of this one."""
        contexts.attach(self._context)

    @contextmanager
    def sending(self, headers: Mapping[str, str]) -> Generator[dict[str, str]]:
        """Return headers with the trace context. Within, spans of the transport are children of this one."""
        sent = dict(headers)
        propagate.inject(sent, self._context)
        with _Entered(self._context):
            yield sent

    def link(self, traceparent: str) -> None:
        """Link this run to an earlier one, whose span is given as a ``traceparent``."""
        earlier = _traceparent.extract({"traceparent": traceparent}, Context())
        self._span.add_link(trace.get_current_span(earlier).get_span_context())

    @property
    def needs_messages(self) -> bool:
        """Whether ``set_messages`` has an effect."""
        return has_contents() and self._span.is_recording()

    def set_messages(self, initial: Sequence[Message], created: Sequence[Message]) -> None:
        """Set the messages that the run started with, and those that it has created."""
        self._span.set_attribute("gen_ai.input.messages", encode_messages(initial))
        self._span.set_attribute("gen_ai.output.messages", encode_messages(created, finish_reason="stop"))

    def end(self, outcome: str, usage: Sequence[TokenUsage] = (), error: BaseException | None = None) -> None:
        """End the span with the outcome of the run, its tokens, and the error that made it fail."""
        if self._span.is_recording():
            self._span.set_attributes({"aguila.outcome": outcome, **_counts(usage)})
            if outcome in _FAILURES:
                _fail(self._span, _type_of(error))
        self._span.end()


class _Entered(AbstractContextManager[None]):
    """A context that is entered for a while.

    A generator that was left is closed in another task, where its context may not be current. There is nothing to undo
    then, and OpenTelemetry would log an error if it was told to.
    """

    def __init__(self, context: Context) -> None:
        self._context = context

    def __enter__(self) -> None:
        self._before = contexts.get_current()
        contexts.attach(self._context)

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if contexts.get_current() is self._context:
            contexts.attach(self._before)


class _Work(_Entered):
    """A span around a piece of work. An exception is its error, but not a question or a cancellation."""

    def __init__(self, span: Span) -> None:
        super().__init__(trace.set_span_in_context(span))
        self._span = span

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, Exception):
            _fail(self._span, _type_of(error))
        super().__exit__(kind, error, traceback)
        self._span.end()


def _attributes(operation: str, thread_id: str, run_id: str) -> dict[str, str | int]:
    return {
        "gen_ai.operation.name": operation,
        "gen_ai.provider.name": PROVIDER,
        "gen_ai.conversation.id": thread_id,
        "aguila.run.id": run_id,
    }


def _parent_of(headers: Mapping[str, str]) -> Context:
    """Return the context of a request: that of its headers, or the current one.

    The current span wins if it is of the same trace: instrumentation of the ASGI server has read the headers already.
    The baggage of a client is ignored: it would go on to models and upstreams.
    """
    current = contexts.get_current()
    sent = propagate.extract({name: headers[name] for name in headers if name != "baggage"}, current)
    own, remote = (trace.get_current_span(each).get_span_context() for each in (current, sent))
    return current if own.trace_id == remote.trace_id else sent


def _hash(scope: str) -> str:
    return sha256(scope.encode()).hexdigest()[:16]


def _counts(usage: Sequence[TokenUsage]) -> dict[str, int]:
    """Return the sums over all models. A count that no model reports is absent."""
    found: dict[str, int] = {}
    for entry in usage:
        for name, attribute in _USAGE.items():
            count: int | None = getattr(entry, name)
            if count is not None:
                found[attribute] = found.get(attribute, 0) + count
    return found


def _fail(span: Span, kind: str) -> None:
    span.set_attribute("error.type", kind)
    span.set_status(StatusCode.ERROR)


def _type_of(error: BaseException | None) -> str:
    """Return the code of an error that has one, else its class. Its text may be what a user wrote."""
    if error is None:
        return "_OTHER"
    code = error.code if isinstance(error, RunFailed | HTTPRejected) else None
    return type(error).__qualname__ if code is None else code
