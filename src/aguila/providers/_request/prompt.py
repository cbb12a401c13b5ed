"""The input of a model in neutral form: messages, tools, instructions, context.

Instructions and context are part of the prompt only. They are sent to the model each time, and never become a message
that is stored or sent to a client.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from aguila.agent.run import Run
from aguila.chat import ChatMessage, FunctionCallContent, provider_history
from aguila.codec.json.values import is_array, is_object
from aguila.codec.notices import Notice, Warn, log_notice
from aguila.offload import is_large, offload
from aguila.protocol import Context, Tool, replace
from aguila.providers._request.history import restore_message

P = ParamSpec("P")
T = TypeVar("T")

_MAX_SIMPLE = 5_000
"""Tool schemas with at most this many parts are reduced on the event loop, which takes some milliseconds."""

BEGIN = "(The user has not said anything yet.)"
"""User text for a provider that requires a user message first."""
GO_ON = "(Please go on.)"
"""User text for a provider that requires a user message last."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """The input of a model. ``instructions`` and ``context`` are for the model only."""

    messages: list[ChatMessage]
    tools: Sequence[Tool] = ()
    instructions: str | None = None
    context: Sequence[Context] = ()

    @property
    def system_text(self) -> str:
        """Join instructions and context to one text; empty if there are none (IN-10)."""
        texts = [] if self.instructions is None else [self.instructions]
        if self.context:
            entries = [f"- {entry.description}: {entry.value}" for entry in self.context]
            texts.append("\n".join(["Context from the application:", *entries]))
        return replace_surrogates("\n\n".join([text for text in texts if text.strip() != ""]))


async def prompt_of(
    run: Run, *, instructions: str | None = None, tools: Iterable[Tool] = (), warn: Warn | None = None
) -> Prompt:
    """Make the prompt of a run: its messages with uploads as bytes, its tools and its context.

    ``tools`` come before those of the front end. A front-end tool with the name of one of ``tools`` is dropped with a
    notice.
    """
    warn = log_notice if warn is None else warn
    messages = await run.chat_messages()
    declared = {tool.name: tool for tool in tools}
    for tool in run.tools:
        if tool.name in declared:
            warn(Notice(rule="FT-6", message=f"dropped the front end's tool {tool.name!r}: the agent has its own"))
        else:
            declared[tool.name] = tool
    return Prompt(messages=messages, tools=list(declared.values()), instructions=instructions, context=run.context)


async def make_offloaded(
    prompt: Prompt, make: Callable[Concatenate[Prompt, P], T], /, *args: P.args, **kwargs: P.kwargs
) -> T:
    """Call ``make`` with a prompt, offloaded if the prompt is large or has complex tools."""
    if is_large(prompt.messages) or not _has_simple_tools(prompt):
        return await offload(make, prompt, *args, **kwargs)
    return make(prompt, *args, **kwargs)


def _has_simple_tools(prompt: Prompt) -> bool:
    """Return whether the schemas of the tools have few parts and no references, which could expand to many."""
    found: list[Any] = [tool.parameters for tool in prompt.tools]
    for part in found:  # the loop also visits added parts
        if is_object(part):
            if "$ref" in part:
                return False
            found += part.values()
        elif is_array(part):
            found += part
        if len(found) > _MAX_SIMPLE:
            return False
    return True


def add_options(made: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Add an application's options to a request. Tools among them are appended."""
    merged = {**made, **options}
    if "tools" in made and isinstance(options.get("tools"), Sequence):
        merged["tools"] = [*made["tools"], *options["tools"]]
    return merged


# The history for a provider


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The call ids and tool names that a provider accepts."""

    call_id: str
    tool_name: str
    longest_id: int = 64
    longest_name: int = 64
    id_prefix: str = "call_"
    """Prefix of ids made here; letters and digits up to ``longest_id`` follow."""


class ProviderView:
    """The messages of a prompt as one provider accepts them, and the names of its tools there.

    ``prepare`` converts a message before it may be joined with others.
    """

    def __init__(
        self, prompt: Prompt, rules: Rules, warn: Warn, prepare: Callable[[ChatMessage], ChatMessage] | None = None
    ) -> None:
        self._id = re.compile(rf"{rules.call_id}\Z")
        self._name = re.compile(rf"{rules.tool_name}\Z")
        self._rules = rules
        self._to_provider: dict[str, str] = {}
        self._from_provider: dict[str, str] = {}
        for tool in prompt.tools:
            self._learn(tool.name)
        self.tools = [(self._to_provider[tool.name], replace_surrogates(tool)) for tool in prompt.tools]
        restored = [restore_message(message, warn) for message in prompt.messages]
        history = provider_history(restored if prepare is None else map(prepare, restored))
        subagents = sum(repair.kind == "dropped_subagent" for repair in history.repairs)
        if subagents:
            message = f"dropped {subagents} message(s) of subagents: the model sees only their results"
            warn(Notice(rule="history", message=message))
        for repair in history.repairs:
            if repair.kind == "dropped_subagent":
                continue
            of = "" if repair.call_id is None else f" (call {repair.call_id!r})"
            message = f"the history was repaired for the provider: {repair.kind}{of}"
            warn(Notice(rule="history", message=message, path=f"/{repair.index}"))
        self.messages = replace_surrogates(history.messages)
        if self.messages is not history.messages:
            warn(Notice(rule="utf-8", message="replaced lone surrogates, which no provider accepts"))

    def name(self, tool: str) -> str:
        """Return the provider's name of a tool, also of one that only the history has."""
        if tool not in self._to_provider:
            self._learn(tool)
        return self._to_provider[tool]

    def own_name(self, name: str) -> str:
        """Return our name of a tool for the provider's name."""
        return self._from_provider.get(name, name)

    def call_id(self, call_id: str) -> str:
        """Return the provider's id of a call: its own, unless the provider would refuse it."""
        if len(call_id) <= self._rules.longest_id and self._id.match(call_id) and not _HALF.search(call_id):
            return call_id
        return f"{self._rules.id_prefix}{_digest(call_id)}"[: self._rules.longest_id]

    def _learn(self, tool: str) -> None:
        name = tool
        if len(name) > self._rules.longest_name or not self._name.match(name):
            name = re.sub(r"[^a-zA-Z0-9_-]", "_", tool)
            if name == "" or not self._name.match(name[0]):
                name = f"tool_{name}"
            name = name[: self._rules.longest_name]
        if name in self._from_provider:
            name = f"{name[: self._rules.longest_name - 9]}_{_digest(tool)[:8]}"
        self._to_provider[tool] = name
        self._from_provider[name] = tool


def _digest(text: str) -> str:
    """Hash a text to letters and digits of five bits each: nine of them are unique enough for a thread."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii")[:24].lower()


def object_arguments(call: FunctionCallContent) -> dict[str, object]:
    """Return the arguments of a call as an object. Text that is not a JSON object is put into one (TOOL-3)."""
    parsed = call.parsed_arguments
    return {"unparsed_arguments": call.arguments} if parsed is None else replace_surrogates(parsed)


# Half an emoji, cut by a JavaScript peer or a tool, is not Unicode text: the SDKs cannot encode it.

_HALF = re.compile("[\ud800-\udfff]")
_EXACT = frozenset({"call_id", "name", "raw_representation", "data"})
"""Fields that stay as they are: ids and names are looked up, and converted by ``ProviderView`` if necessary."""


def replace_surrogates(value: Any) -> Any:
    """Join adjacent surrogates, and replace lone ones by U+FFFD. Returns the same object if there are none."""
    if isinstance(value, str):
        if value.isascii() or _HALF.search(value) is None:
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if is_array(value):
        elements: list[Any] = value
        others = [replace_surrogates(element) for element in elements]
        return others if any(new is not old for new, old in zip(others, elements, strict=True)) else elements
    if is_object(value):
        members: dict[str, Any] = value
        fresh = [(replace_surrogates(name), replace_surrogates(member)) for name, member in members.items()]
        pairs = zip(fresh, members.items(), strict=True)
        return dict(fresh) if any(new[0] is not old[0] or new[1] is not old[1] for new, old in pairs) else members
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _EXACT}
        changed = {name: new for name, old in found.items() if (new := replace_surrogates(old)) is not old}
        return replace(value, **changed) if changed else value
    return value
