"""Layer: providers. What a model is asked, before any provider's shape: messages, tools, instructions, context.

Below: ``aguila.chat`` and ``Run``. Above: ``request`` of every provider. Instructions and context live in the prompt
only: they are given to the model each time and never become a message that is stored or sent to a client (P22).
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
from aguila.codec.notice import Notice, Warn, log_notice
from aguila.codec.values import is_array, is_object
from aguila.offload import is_large, offload
from aguila.protocol import Context, Tool, replace
from aguila.providers._said import as_said

P = ParamSpec("P")
T = TypeVar("T")

BEGIN = "(The user has not said anything yet.)"
"""What stands for the user where a provider demands that the user speaks first."""
GO_ON = "(Please go on.)"
"""What stands for the user where a provider demands that the user speaks last."""


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """What a model is asked. ``instructions`` and ``context`` are for the model alone."""

    messages: list[ChatMessage]
    tools: Sequence[Tool] = ()
    instructions: str | None = None
    context: Sequence[Context] = ()

    @property
    def system_text(self) -> str:
        """Instructions and context as one text; empty if there are none (IN-10)."""
        texts = [] if self.instructions is None else [self.instructions]
        if self.context:
            entries = [f"- {entry.description}: {entry.value}" for entry in self.context]
            texts.append("\n".join(["Context from the application:", *entries]))
        return without_halves("\n\n".join([text for text in texts if text.strip() != ""]))


async def prompt_of(
    run: Run, *, instructions: str | None = None, tools: Iterable[Tool] = (), warn: Warn | None = None
) -> Prompt:
    """What a run asks: its messages with uploads as bytes, ``tools`` before those of the front end, its context.

    A tool of the front end that has the name of one of ``tools`` is left out, with a notice.
    """
    warn = log_notice if warn is None else warn
    messages = await run.chat_messages()
    declared = {tool.name: tool for tool in tools}
    for tool in run.tools:
        if tool.name in declared:
            warn(Notice(rule="FT-6", message=f"the tool {tool.name!r} of the front end has the name of another"))
        else:
            declared[tool.name] = tool
    return Prompt(messages=messages, tools=list(declared.values()), instructions=instructions, context=run.context)


async def made_of(prompt: Prompt, make: Callable[Concatenate[Prompt, P], T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """What ``make`` makes of a prompt: a view or a request. What is large is worked on apart from the event loop."""
    if is_large(prompt.messages):
        return await offload(make, prompt, *args, **kwargs)
    return make(prompt, *args, **kwargs)


def with_options(made: dict[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """A request with what an application asks for beside; its tools stand after those that are there already."""
    merged = {**made, **options}
    if "tools" in made and isinstance(options.get("tools"), Sequence):
        merged["tools"] = [*made["tools"], *options["tools"]]
    return merged


# The view that a provider is given


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """What a provider accepts as the id of a call and as the name of a tool."""

    call_id: str
    tool_name: str
    longest_id: int = 64
    longest_name: int = 64
    id_prefix: str = "call_"
    """What ids begin with that are made here; letters, digits and ``longest_id`` do the rest."""


class View:
    """The messages of a prompt as one provider accepts them, and the names that its tools have there.

    ``prepare`` is what the provider does to a message before it may be joined with others.
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
        self.tools = [(self._to_provider[tool.name], without_halves(tool)) for tool in prompt.tools]
        said = [as_said(message, warn) for message in prompt.messages]
        history = provider_history(said if prepare is None else map(prepare, said))
        subagents = sum(repair.kind == "dropped_subagent" for repair in history.repairs)
        if subagents:
            warn(
                Notice(rule="history", message=f"left out {subagents} message(s) of subagents, as the run itself does")
            )
        for repair in history.repairs:
            if repair.kind == "dropped_subagent":
                continue
            of = "" if repair.call_id is None else f" (call {repair.call_id!r})"
            message = f"the provider's view of the history has a repair: {repair.kind}{of}"
            warn(Notice(rule="history", message=message, path=f"/{repair.index}"))
        self.messages = without_halves(history.messages)
        if self.messages is not history.messages:
            warn(Notice(rule="utf-8", message="halves of characters were replaced: no provider accepts them"))

    def name(self, tool: str) -> str:
        """The name that a tool has at the provider, also one that is known from the history alone."""
        if tool not in self._to_provider:
            self._learn(tool)
        return self._to_provider[tool]

    def own_name(self, name: str) -> str:
        """The name of a tool here, from what the provider calls it."""
        return self._from_provider.get(name, name)

    def call_id(self, call_id: str) -> str:
        """The id that a call has at the provider: its own, unless the provider would refuse that."""
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
    """Letters and digits for a text, each as good as five bits: nine of them are unique enough for a thread."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii")[:24].lower()


def object_arguments(call: FunctionCallContent) -> dict[str, object]:
    """The arguments of a call as an object: what is no JSON object is kept as text in one (TOOL-3)."""
    parsed = call.parsed_arguments
    return {"unparsed_arguments": call.arguments} if parsed is None else without_halves(parsed)


# Half an emoji, cut off by a JavaScript peer or a tool, is no Unicode: the SDKs cannot even encode it.

_HALF = re.compile("[\ud800-\udfff]")
_EXACT = frozenset({"call_id", "name", "raw_representation", "data"})
"""What stays as it is: ids and names are looked up, and spelled anew by ``View`` if need be."""


def without_halves(value: Any) -> Any:
    """The same with U+FFFD for halves of characters, and with halves that meet joined; itself if it has none."""
    if isinstance(value, str):
        if value.isascii() or _HALF.search(value) is None:
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if is_array(value):
        elements: list[Any] = value
        others = [without_halves(element) for element in elements]
        return others if any(new is not old for new, old in zip(others, elements, strict=True)) else elements
    if is_object(value):
        members: dict[str, Any] = value
        fresh = [(without_halves(name), without_halves(member)) for name, member in members.items()]
        pairs = zip(fresh, members.items(), strict=True)
        return dict(fresh) if any(new[0] is not old[0] or new[1] is not old[1] for new, old in pairs) else members
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _EXACT}
        changed = {name: new for name, old in found.items() if (new := without_halves(old)) is not old}
        return replace(value, **changed) if changed else value
    return value
