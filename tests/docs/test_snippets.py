"""The Python in our documents runs, and gives what it says it gives. Their commands have the options that they name."""

from __future__ import annotations

import ast
import re
import traceback
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from processes import forked

from aguila.cli.commands import commands

ROOT = Path(__file__).parents[2]
DOCUMENTS = ["README.md", "docs/tutorial.md", "docs/chat.md", "docs/events.md"]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
GIVES = re.compile(r"^(?P<code>[^#\n]+?)\s+# (?P<value>True|b'.*|\[.*)$")


def blocks(document: str) -> list[str]:
    return BLOCK.findall((ROOT / document).read_text())


@pytest.mark.parametrize("document", DOCUMENTS)
def test_the_python_in_the_document_runs(document: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "none")  # a client is made, but sends no request
    found = blocks(document)
    assert found
    for block in found:
        if block.startswith(">>>"):
            continue
        names: dict[str, Any] = {}
        exec(compile(block, document, "exec"), names)
        for line in block.splitlines():
            if (claim := GIVES.match(line)) is not None:
                assert (
                    eval(claim["code"], names) == ast.literal_eval(claim["value"])
                    if claim["value"][0] != "["
                    else (repr(eval(claim["code"], names)) == claim["value"])
                ), line


OTHERS = [
    path.name
    for path in sorted(ROOT.glob("docs/*.md"))
    if "```python" in path.read_text() and f"docs/{path.name}" not in DOCUMENTS
]
ELSEWHERE = {
    "client.md": "test_client_document.py runs it against a server",
    "frameworks.md": "tests/peers has the frameworks",
    "stores.md": "it quotes an example",
    "telemetry.md": "test_telemetry_document.py runs it; the exporter that its first block imports is not installed",
}
AGENT = "async def agent(run): yield 'Hello'\n"
"""The agent that most documents take for granted."""


@pytest.mark.parametrize("document", [name for name in OTHERS if name not in ELSEWHERE])
def test_the_blocks_of_a_document_run_one_after_the_other(
    document: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OPENAI_API_KEY", "METRICS_TOKEN"):
        monkeypatch.setenv(variable, "none")
    (tmp_path / "logo.svg").write_text('<svg xmlns="http://www.w3.org/2000/svg"/>')
    (tmp_path / "page.py").write_text(AGENT + "".join(blocks(f"docs/{document}")))
    forked.run_script(tmp_path / "page.py", tmp_path)


SHELL = re.compile(r"^ *```(?:sh|bash|console)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
COMMAND = re.compile(r"(?:^|[\s/])aguila (\w.*)$")


def commands_in(text: str) -> Iterator[list[str]]:
    """Yield the words of each ``aguila`` command in the blocks for a shell and in code within sentences."""
    lines = [line for block in SHELL.findall(text) for line in block.replace("\\\n", " ").splitlines()]
    for line in [*lines, *re.findall(r"`(aguila [^`]+)`", text)]:
        for part in re.split(r"&&|;|\\?\|", line):
            if found := COMMAND.search(part.strip()):
                yield found[1].partition(" #")[0].split()


def unknown_in(words: list[str]) -> list[str]:
    """Return the command or the options of these words that the ``aguila`` script does not have."""
    command: Any = typer.main.get_command(commands)
    while words and getattr(command, "commands", None):
        if words[0] not in command.commands:
            return words[:1]
        command, *words = command.commands[words[0]], *words[1:]
    known = {name for parameter in command.params for name in (*parameter.opts, *parameter.secondary_opts)} | {"--help"}
    return [word for word in words if word.startswith("--") and word.partition("=")[0] not in known]


def test_the_commands_in_the_documents_exist() -> None:
    documents = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), *ROOT.glob("examples/**/README.md")]
    documents = [path for path in documents if path.name != "CHANGELOG.md" and "node_modules" not in path.parts]
    found = {
        f"{path.name}: aguila {' '.join(words)}": words for path in documents for words in commands_in(path.read_text())
    }
    assert len(found) > 100
    assert {command: unknown for command, words in found.items() if (unknown := unknown_in(words))} == {}


def test_an_unknown_command_and_an_unknown_option_are_found() -> None:
    assert unknown_in(["serv", "mine:agent"]) == ["serv"]
    assert unknown_in(["serve", "mine:agent", "--prot", "80"]) == ["--prot"]
    assert unknown_in(["serve", "mine:agent", "--port=80"]) == []


def test_the_session_in_the_document_is_true() -> None:
    session = next(block for block in blocks("docs/events.md") if block.startswith(">>>"))
    call, expected = session.strip().splitlines()
    from aguila.codec import decode_event

    with pytest.raises(ValueError) as caught:
        eval(call.removeprefix(">>> "), {"decode_event": decode_event})
    assert traceback.format_exception_only(caught.value)[-1].strip() == expected


def test_every_link_in_the_documents_leads_somewhere() -> None:
    for document in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\((?!https?:)([^)#]+)", document.read_text()):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
