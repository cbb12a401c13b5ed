"""The Python of docs/client.md, against the demo agent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from processes import forked
from processes.commands import aguila_serve
from serving import REPOSITORY

from aguila.cli.demo import png

BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS = "http://127.0.0.1:8000"


def blocks(document: str) -> list[str]:
    return BLOCK.findall((REPOSITORY / document).read_text())


def run(script: str, folder: Path) -> str:
    """Run a script in a folder that has a photo; return its output."""
    (folder / "photo.png").write_bytes(png(3, 2, (0, 0, 255)))
    with aguila_serve(folder, "aguila.cli.demo:agent") as server:
        assert ADDRESS in script
        (folder / "talk.py").write_text(script.replace(ADDRESS, server.url))
        done = forked.run(["-W", "error", str(folder / "talk.py")], folder)
    assert done.returncode == 0, done.stderr
    assert b"Traceback" not in done.stderr
    return done.stdout.decode()


def test_the_python_of_the_client_document_does_what_it_says(tmp_path: Path) -> None:
    found = blocks("docs/client.md")
    assert len(found) >= 6
    said = run("\n".join(found) + "\nclient.close()\n", tmp_path)
    for words in (
        "everybody who watches sees it grow",
        "{'recipe': {'title': 'Soup', 'ingredients': ['leek', 'potato', 'thyme']}}",
        "RUN_FINISHED",
        "I read.",
        "Your front end answered: paid",
        "It will be green.",
        "cancelled",
    ):
        assert words in said, words
    assert said.count("You sent a PNG image") == 2


@pytest.mark.parametrize("name", ["GIVE_UP", "approve", "deny", "FilterToolCalls", "Record", "on_input", "Reconnect"])
def test_what_the_document_names_is_there(name: str) -> None:
    import aguila.client

    assert name in (REPOSITORY / "docs/client.md").read_text()
    assert hasattr(aguila.client, name)
