"""Model servers on the loopback, and agents of every provider that talk to them.

``aimock`` is a server of another project. ``Recorded`` answers with streams in each provider's format, written by us
after the types of its SDK, for what aimock lacks; it keeps the requests that came, as does a ``Relay`` in front of any
other.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import ssl
import subprocess
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from processes.node import FOLDER, node_path
from pydantic_ai import Agent, ApprovalRequired, ModelRetry, RunContext, Tool
from pydantic_ai.usage import UsageLimits
from waiting import DEADLINE

from aguila.agent.run import Run
from aguila.chat import FunctionTool, ToolError
from aguila.frameworks import pydantic_ai

PROVIDERS = ("openai chat", "openai responses", "anthropic", "gemini")
MODELS = {
    "openai chat": "gpt-5.4-mini",
    "openai responses": "gpt-5.5",
    "anthropic": "claude-sonnet-5-5",
    "gemini": "gemini-3.8-flash",
    "mistral": "mistral-medium-latest",
}
"""``PROVIDERS``, and Mistral: a vendor of pydantic-ai for which nothing of ours was written."""

Json = dict[str, Any]
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
_OF_A_HOP = frozenset({"host", "connection", "content-length", "transfer-encoding", "accept-encoding"})
_numbers = itertools.count(1)
CUT = "cut"
"""As the last piece of an answer: the connection ends before the answer does."""
Answer = tuple[int, bytes | list[bytes | threading.Event | str]]
"""A status and a body; in pieces, the answer waits at an event until the test sets it."""


def agent_for(
    provider: str,
    url: str,
    /,
    *,
    tools: Iterable[Any] = (),
    instructions: Any = None,
    max_rounds: int = 10,
    settings: Json | None = None,
    **options: Any,
) -> Any:
    """Return an agent with a model of a vendor, over its official SDK, that talks to the server at ``url``.

    Each run has a client of its own, closed with it: a test leaves no connection behind.
    """
    name = MODELS[provider]
    agent: Agent[Any, Any] = Agent(
        deps_type=Run, tools=[pydantic_tool(tool) for tool in tools], instructions=instructions, retries=9
    )
    limits = UsageLimits(request_limit=max_rounds)

    async def serve(run: Any) -> None:
        async with model_of(provider, url, name) as model:
            made = pydantic_ai.agent(agent, model=model, usage_limits=limits, model_settings=settings, **options)
            if run.agent is serve:
                run.agent = made
            await made(run)

    return serve


def pydantic_tool(tool: Any) -> Tool[Any]:
    """Return a function tool of ours as a tool of pydantic-ai, whose dependencies are the run."""
    made = FunctionTool.of(tool)

    async def call(ctx: RunContext[Run], /, **arguments: Any) -> Any:
        try:
            bound = made.check(arguments)
        except ToolError as error:
            raise ModelRetry(str(error)) from error
        if made.needs_approval(arguments) and not ctx.tool_call_approved:
            raise ApprovalRequired
        if made.takes_run:
            bound["run"] = ctx.deps
        value = made.function(**bound) if made.is_async else await asyncio.to_thread(made.function, **bound)
        return await value if inspect.isawaitable(value) else value

    declared = made.declaration
    return Tool.from_schema(call, declared.name, declared.description, declared.parameters, takes_ctx=True)


@asynccontextmanager
async def model_of(provider: str, url: str, name: str) -> AsyncIterator[Any]:
    """Make a model of pydantic-ai that talks to the server at ``url``."""
    match provider:
        case "anthropic":
            from anthropic import AsyncAnthropic, DefaultAsyncHttpxClient
            from pydantic_ai.models.anthropic import AnthropicModel
            from pydantic_ai.providers.anthropic import AnthropicProvider

            # Loading certificates takes longer than the test; a loaded machine connects in more than 5 seconds.
            plain = DefaultAsyncHttpxClient(verify=False)
            async with AsyncAnthropic(
                base_url=url, timeout=DEADLINE, api_key="key", max_retries=0, http_client=plain
            ) as client:
                yield AnthropicModel(name, provider=AnthropicProvider(anthropic_client=client))
        case "gemini":
            from google.genai import Client
            from pydantic_ai.models.google import GoogleModel
            from pydantic_ai.providers.google import GoogleProvider

            genai = Client(
                api_key="key",
                http_options={
                    "base_url": url,
                    "api_version": "v1beta",
                    "client_args": {"verify": _NO_CERTIFICATES},
                    "async_client_args": {"verify": _NO_CERTIFICATES, "ssl": _NO_CERTIFICATES},
                },
            )
            async with genai.aio:
                yield GoogleModel(name, provider=GoogleProvider(client=genai))
        case "mistral":
            from httpx2 import AsyncClient
            from mistralai.client import Mistral
            from pydantic_ai.models.mistral import MistralModel
            from pydantic_ai.providers.mistral import MistralProvider

            async with AsyncClient(verify=False, timeout=DEADLINE) as plain:
                client = Mistral(api_key="key", server_url=url, async_client=plain, timeout_ms=int(DEADLINE * 1000))
                yield MistralModel(name, provider=MistralProvider(mistral_client=client))
        case _:
            from openai import AsyncOpenAI, DefaultAsyncHttpxClient
            from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
            from pydantic_ai.providers.openai import OpenAIProvider

            plain = DefaultAsyncHttpxClient(verify=False)
            async with AsyncOpenAI(
                base_url=f"{url}/v1", timeout=DEADLINE, api_key="key", max_retries=0, http_client=plain
            ) as client:
                kind = OpenAIChatModel if provider == "openai chat" else OpenAIResponsesModel
                yield kind(name, provider=OpenAIProvider(openai_client=client))


def turn_fixtures() -> list[Json]:
    """Return the answers of aimock, by the message of the user."""
    made: list[Json] = [
        {"match": {"userMessage": "hello"}, "response": {"content": "Hi there, friend!"}},
        {"match": {"userMessage": "think"}, "response": {"content": "42.", "reasoning": "Let me think."}},
        {"match": {"userMessage": "look"}, "response": {"content": "A single blue pixel."}},
        {"match": {"userMessage": "tell"}, "response": {"content": "Once upon", "finishReason": "length"}},
        {"match": {"userMessage": "forbid"}, "response": {"content": "I will", "finishReason": "content_filter"}},
        {
            "match": {"userMessage": "fail"},
            "response": {
                "error": {"message": "key sk-123 is over its limit", "type": "rate_limit_error"},
                "status": 429,
            },
        },
    ]
    called = {
        "weather in one": [("weather", {"city": "Oslo"})],
        "weather in two": [("weather", {"city": "Oslo"}), ("weather", {"city": "Rome"})],
        "pay": [("pay", {"amount": 900})],
        "date": [("pick_date", {"month": "May"})],
        "mixed": [("weather", {"city": "Oslo"}), ("pick_date", {"month": "May"}), ("pay", {"amount": 900})],
    }
    for said, calls in called.items():
        asked = [{"name": name, "arguments": json.dumps(arguments)} for name, arguments in calls]
        made.append({"match": {"userMessage": said, "hasToolResult": False}, "response": {"toolCalls": asked}})
        made.append({"match": {"userMessage": said, "hasToolResult": True}, "response": {"content": "That is done."}})
    return made


@contextmanager
def aimock(fixtures: list[Json]) -> Iterator[str]:
    """The address of an aimock with these fixtures."""
    command = [node_path(), str(FOLDER / "aimock.mjs")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=FOLDER) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps({"fixtures": fixtures}) + "\n")
        process.stdin.flush()
        url = process.stdout.readline().strip()
        assert url.startswith("http://127.0.0.1:"), url
        try:
            yield url
        finally:
            process.stdin.close()
            process.wait(DEADLINE)


class Relay:
    """Hands requests on to another model server and its answers back, and keeps the requests as the SDK sent them."""

    def __init__(self, target: str) -> None:
        self.requests: list[Json] = []
        relay = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                relay.requests.append(json.loads(body))
                headers = {name: value for name, value in self.headers.items() if name.lower() not in _OF_A_HOP}
                try:
                    answer = urlopen(Request(target + self.path, body, headers))
                except HTTPError as error:
                    answer = error
                with answer:
                    said = answer.read()
                self.send_response(answer.status)
                self.send_header("content-type", answer.headers["content-type"])
                self.send_header("content-length", str(len(said)))
                self.end_headers()
                self.wfile.write(said)

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._serving = _Serving(Handler)
        self.url = self._serving.url

    def __enter__(self) -> Relay:
        self._serving.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._serving.stop()


class _Serving:
    """A server in a thread of its own."""

    def __init__(self, handler: type[BaseHTTPRequestHandler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02})

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class Recorded:
    """Answers requests in order with the given answers, and keeps the requests."""

    def __init__(self, answers: list[Answer]) -> None:
        self.requests: list[Json] = []
        self._answers = list(answers)
        recorded = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"]))
                recorded.requests.append(json.loads(body))
                status, answer = recorded._answers.pop(0)
                self.send_response(status)
                kind = "text/event-stream" if status == 200 else "application/json"
                self.send_header("content-type", kind)
                if isinstance(answer, bytes):
                    self.send_header("content-length", str(len(answer)))
                    self.end_headers()
                    self.wfile.write(answer)
                    return
                self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                self.close_connection = True
                with suppress(ConnectionError):  # the client may have disconnected
                    for piece in answer:
                        if isinstance(piece, threading.Event):
                            assert piece.wait(60)
                        elif isinstance(piece, bytes):
                            self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                    if not answer or answer[-1] != CUT:
                        self.wfile.write(b"0\r\n\r\n")

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._serving = _Serving(Handler)
        self.url = self._serving.url

    def __enter__(self) -> Recorded:
        self._serving.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._serving.stop()


# Streams as each provider sends them


def sse(events: list[Json], *, named: bool = False, done: bool = False) -> Answer:
    lines = [
        f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" if named else f"data: {json.dumps(event)}\n\n"
        for event in events
    ]
    return 200, ("".join(lines) + ("data: [DONE]\n\n" if done else "")).encode()


def frames(answer: Answer) -> list[bytes]:
    """Return an answer as the frames that it consists of."""
    body = answer[1]
    assert isinstance(body, bytes)
    return [frame + b"\n\n" for frame in body.split(b"\n\n") if frame != b""]


def stream(provider: str, **turn: Any) -> Answer:
    """A turn in a provider's format: a thought (text and signature), text, calls, a refusal, how it ended, usage."""
    kinds = {"openai responses": _responses, "anthropic": _anthropic, "gemini": _gemini, "mistral": _mistral}
    return kinds.get(provider, _chat)(**turn)


Calls = list[tuple[str, str, Json]]


def _chat(
    *,
    thought: tuple[str, str] | None = None,
    text: str = "",
    calls: Calls = [],  # noqa: B006
    refusal: str = "",
    finish: str = "stop",
    usage: Json | None = None,
) -> Answer:
    def chunk(delta: Json, reason: str | None = None) -> Json:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "same", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}

    events = [chunk({"role": "assistant", "content": ""})]
    if thought is not None:
        events.append(chunk({"reasoning_content": thought[0]}))
    events += [chunk({"content": piece}) for piece in _pieces(text)]
    events += [chunk({"refusal": piece}) for piece in _pieces(refusal)]
    pieces = [(index, _pieces(json.dumps(arguments))) for index, (_, _, arguments) in enumerate(calls)]
    for index, (call_id, name, _) in enumerate(calls):
        begun = {"index": index, "id": call_id, "type": "function", "function": {"name": name, "arguments": ""}}
        events.append(chunk({"tool_calls": [begun]}))
    for place in range(max([len(found) for _, found in pieces], default=0)):  # interleaved, as some servers do
        for index, found in pieces:
            if place < len(found):
                events.append(chunk({"tool_calls": [{"index": index, "function": {"arguments": found[place]}}]}))
    events.append(chunk({}, "tool_calls" if calls else finish))
    if usage is not None:
        events.append({**chunk({}), "choices": [], "usage": usage})
    return sse(events, done=True)


def _mistral(*, thought: tuple[str, str] | None = None, calls: Calls = [], **turn: Any) -> Answer:  # noqa: B006
    """Return a stream as of Chat Completions. A thought is a chunk of the content, and calls come whole."""

    def frame(delta: Json) -> bytes:
        choice = {"index": 0, "delta": delta, "finish_reason": None}
        chunk = {"id": "same", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
        return f"data: {json.dumps(chunk)}\n\n".encode()

    *texts, end, done = frames(_chat(**{"finish": "tool_calls" if calls else "stop", **turn}))
    if "usage" in turn:  # it comes with the end, not after it
        texts, end = texts[:-1], b'%s, "usage": %s}\n\n' % (texts[-1].strip()[:-1], json.dumps(turn["usage"]).encode())
    if thought is not None:
        texts.insert(0, frame({"content": [{"type": "thinking", "thinking": [{"type": "text", "text": thought[0]}]}]}))
    whole = [
        {"id": call_id, "index": index, "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (call_id, name, arguments) in enumerate(calls)
    ]
    if whole:
        texts.append(frame({"tool_calls": whole}))
    return 200, b"".join([*texts, end, done])


def _pieces(text: str) -> list[str]:
    half = len(text) // 2
    return [piece for piece in (text[:half], text[half:]) if piece != ""]


def _responses(
    *,
    thought: tuple[str, str] | None = None,
    text: str = "",
    calls: Calls = [],  # noqa: B006
    refusal: str = "",
    finish: str = "stop",
    usage: Json | None = None,
) -> Answer:
    events: list[Json] = []
    place = 0
    number = next(_numbers)  # ids of items are unique, also those of different answers

    def response(status: str, **more: Any) -> Json:
        made = {"id": "resp_1", "object": "response", "created_at": 1, "model": "m", "output": [], "status": status}
        return {**made, "parallel_tool_calls": True, "tool_choice": "auto", "tools": [], **more}

    events.append({"type": "response.created", "response": response("in_progress")})
    if thought is not None:
        item = {"id": f"rs_{number}", "type": "reasoning", "summary": []}
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        for piece in _pieces(thought[0]):
            events.append(
                {
                    "type": "response.reasoning_summary_text.delta",
                    "item_id": f"rs_{number}",
                    "output_index": place,
                    "summary_index": 0,
                    "delta": piece,
                }
            )
        done = {**item, "summary": [{"type": "summary_text", "text": thought[0]}], "encrypted_content": thought[1]}
        events.append({"type": "response.output_item.done", "output_index": place, "item": done})
        place += 1
    for kind, said in (("output_text", text), ("refusal", refusal)):
        if said == "":
            continue
        item = {"id": f"msg_{number}", "type": "message", "role": "assistant", "status": "in_progress", "content": []}
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        for piece in _pieces(said):
            events.append(
                {
                    "type": f"response.{kind}.delta",
                    "item_id": f"msg_{number}",
                    "output_index": place,
                    "content_index": 0,
                    "delta": piece,
                    "logprobs": [],
                }
            )
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
        place += 1
    for call_id, name, arguments in calls:
        item = {"id": f"fc_{place}", "type": "function_call", "call_id": call_id, "name": name, "arguments": ""}
        events.append({"type": "response.output_item.added", "output_index": place, "item": item})
        for piece in _pieces(json.dumps(arguments)):
            events.append(
                {
                    "type": "response.function_call_arguments.delta",
                    "item_id": item["id"],
                    "output_index": place,
                    "delta": piece,
                }
            )
        whole = {**item, "arguments": json.dumps(arguments), "status": "completed"}
        events.append({"type": "response.output_item.done", "output_index": place, "item": whole})
        place += 1
    if finish == "length":
        last = response("incomplete", usage=usage, incomplete_details={"reason": "max_output_tokens"})
        events.append({"type": "response.incomplete", "response": last})
    else:
        events.append({"type": "response.completed", "response": response("completed", usage=usage)})
    return sse([{**event, "sequence_number": number} for number, event in enumerate(events)], named=True)


def _anthropic(
    *,
    thought: tuple[str, str] | None = None,
    hidden: str | None = None,
    text: str = "",
    calls: Calls = [],  # noqa: B006
    refusal: str = "",
    finish: str = "stop",
    usage: Json | None = None,
) -> Answer:
    counts = {"input_tokens": 0, "output_tokens": 0} if usage is None else usage
    message = {"id": "same", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": counts}
    events: list[Json] = [{"type": "message_start", "message": {**message, "stop_reason": None, "stop_sequence": None}}]
    place = 0

    def block(start: Json, deltas: list[Json]) -> None:
        nonlocal place
        events.append({"type": "content_block_start", "index": place, "content_block": start})
        events.extend({"type": "content_block_delta", "index": place, "delta": delta} for delta in deltas)
        events.append({"type": "content_block_stop", "index": place})
        place += 1

    if thought is not None:
        deltas = [{"type": "thinking_delta", "thinking": piece} for piece in _pieces(thought[0])]
        signature = {"type": "signature_delta", "signature": thought[1]}
        block({"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature])
    if hidden is not None:
        block({"type": "redacted_thinking", "data": hidden}, [])
    if text or refusal:
        deltas = [{"type": "text_delta", "text": piece} for piece in _pieces(text or refusal)]
        block({"type": "text", "text": ""}, deltas)
    events.append({"type": "ping"})
    for call_id, name, arguments in calls:
        deltas = [
            {"type": "input_json_delta", "partial_json": piece} for piece in ("", *_pieces(json.dumps(arguments)))
        ]
        block({"type": "tool_use", "id": call_id, "name": name, "input": {}}, deltas)
    reason = "tool_use" if calls else {"stop": "end_turn", "length": "max_tokens"}[finish]
    reason = "refusal" if refusal else reason
    delta = {"stop_reason": reason, "stop_sequence": None}
    events.append({"type": "message_delta", "delta": delta, "usage": counts})
    events.append({"type": "message_stop"})
    return sse(events, named=True)


def _gemini(
    *,
    thought: tuple[str, str] | None = None,
    text: str = "",
    calls: Calls = [],  # noqa: B006
    refusal: str = "",
    finish: str = "stop",
    usage: Json | None = None,
) -> Answer:
    def response(parts: list[Json], reason: str | None = None) -> Json:
        candidate: Json = {"content": {"role": "model", "parts": parts}, "index": 0}
        if reason is not None:
            candidate["finishReason"] = reason
        made: Json = {"candidates": [candidate], "responseId": "same", "modelVersion": "m"}
        return made if usage is None else {**made, "usageMetadata": usage}

    events: list[Json] = []
    if thought is not None:
        events.append(response([{"text": thought[0], "thought": True}]))
    events += [response([{"text": piece}]) for piece in _pieces(text)]
    parts: list[Json] = []
    for index, (_, name, arguments) in enumerate(calls):
        part: Json = {"functionCall": {"name": name, "args": arguments}}
        if index == 0 and thought is not None:
            part["thoughtSignature"] = thought[1]
        parts.append(part)
    if parts:
        events.append(response(parts))
    if thought is not None and not calls:
        events.append(response([{"text": "", "thoughtSignature": thought[1]}]))
    reason = "SAFETY" if refusal else {"stop": "STOP", "length": "MAX_TOKENS"}[finish]
    events.append(response([{"text": refusal}] if refusal else [{"text": ""}], reason))
    return sse(events)
