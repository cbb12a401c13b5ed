"""The pages of docs/reference list every public member of every wire type, with an example that is valid."""

from __future__ import annotations

import inspect
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgspec
import pytest

from aguila import chat, codec, protocol
from aguila.codec import decode, decode_event
from aguila.protocol import capabilities, events, legacy, messages, parts, patch, run

ROOT = Path(__file__).parents[2]
MODULES = {
    "events": events,
    "messages": messages,
    "parts": parts,
    "run": run,
    "capabilities": capabilities,
    "legacy": legacy,
}


def public_types() -> list[tuple[str, type[msgspec.Struct]]]:
    """Return (page, type) of every public wire type."""
    return [
        (page, value)
        for page, module in MODULES.items()
        for name, value in vars(module).items()
        if isinstance(value, type) and issubclass(value, msgspec.Struct) and value.__module__ == module.__name__
        and not name.startswith("_")
    ]  # fmt: skip


def section(page: str, name: str) -> str:
    """Return the text about a type."""
    text = (ROOT / "docs" / "reference" / f"{page}.md").read_text()
    found = re.search(rf"^## {name}\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    assert found is not None, f"{page}.md has no section {name}"
    return found[1]


def test_the_pages_are_current():
    done = subprocess.run(
        [sys.executable, ROOT / "scripts" / "reference.py", "--check"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("page", "kind"), public_types(), ids=lambda value: getattr(value, "__name__", value))
def test_every_member_is_listed_with_its_optionality(page: str, kind: type[msgspec.Struct]):
    rows = dict(
        re.findall(r"^\| `(\w+)` \| `\w+` \| .* \| (yes|no) \| .+ \|$", section(page, kind.__name__), re.MULTILINE)
    )
    for field in msgspec.structs.fields(kind):
        is_role = kind is events.ReasoningMessageStartEvent and field.name == "role"  # required on the wire only
        assert rows.get(field.encode_name) == ("no" if field.required or is_role else "yes"), field.encode_name
    tag = kind.__struct_config__.tag_field
    assert set(rows) - {field.encode_name for field in msgspec.structs.fields(kind)} <= {tag}


@pytest.mark.parametrize(("page", "kind"), public_types(), ids=lambda value: getattr(value, "__name__", value))
def test_every_type_has_rules_and_every_concrete_type_a_valid_example(page: str, kind: type[msgspec.Struct]):
    text = section(page, kind.__name__)
    assert re.search(r"^Rules: \[?[A-Z]+-\d+", text, re.MULTILINE)
    found = re.search(r"```json\n(.*?)```", text, re.DOTALL)
    if kind in (events.BaseEvent, events.AttributableEvent, messages.BaseMessage):
        assert found is None
        return
    assert found is not None
    if page == "events":
        assert type(decode_event(found[1], strict=True)) is kind
    elif page != "legacy":
        assert type(decode(found[1], kind, strict=True)) is kind


def test_every_patch_operation_is_listed():
    for name, kind in vars(patch).items():
        if name.endswith("Operation") and name != "JsonPatchOperation":
            text = section("patch", name)
            example: dict[str, Any] = json.loads(re.search(r"```json\n(.*?)```", text, re.DOTALL)[1])  # type: ignore[index]
            assert set(example) == set(kind.__annotations__)


@pytest.mark.parametrize(("page", "module"), [("chat", chat), ("codec", codec)], ids=["chat", "codec"])
def test_every_public_function_and_class_has_a_section_with_its_docstring(page: str, module: Any):
    public = {name: getattr(module, name) for name in module.__all__}
    documented = {name: one for name, one in public.items() if inspect.isfunction(one) or inspect.isclass(one)}
    assert documented
    for name, value in documented.items():
        first = value.__doc__.replace("``", "`").split("\n")[0]
        assert first in section(page, name)


def test_the_functions_that_convert_messages_are_found_in_the_reference():
    assert "def as_chat_messages(messages: Iterable[Message]" in section("chat", "as_chat_messages")
    assert 'unsupported: Literal["raise", "drop"] = "raise"' in section("chat", "as_agui_messages")
    assert "def parts_of(content: Message | str" in section("codec", "parts_of")
    assert "### EventDecoder.feed\n" in section("codec", "EventDecoder")
    assert "`media_type`" in section("chat", "DataContent")
    assert "### ChatMessage.text\n" in section("chat", "ChatMessage")


def test_every_exported_wire_type_has_a_section():
    known = {kind for _, kind in public_types()}
    exported = {
        value for value in vars(protocol).values() if isinstance(value, type) and issubclass(value, msgspec.Struct)
    }
    assert {kind for kind in exported if not kind.__name__.startswith("_")} <= known | {
        kind for kind in exported if kind.__module__ == "aguila.protocol._base"
    }
