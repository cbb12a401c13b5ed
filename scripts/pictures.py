"""Take the pictures of README.md and docs/: for ``make pictures``.

The page is photographed in Debian's Chromium, in front of the demo. The terminal pictures are what the commands print
in a terminal, as SVG.
"""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import tempfile
import termios
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

import httpx2
from aguila_process import AguilaProcess
from chat_page import ChatPage
from frontends_matrix import CHROMIUM_FLAGS
from inspector_page import InspectorPage
from playwright.sync_api import Browser, Page, expect, sync_playwright
from processes.commands import aguila_serve
from recipes import CHROMIUM, REPOSITORY, MissingTool, require_tools
from rich.console import Console
from rich.text import Text

PICTURES = REPOSITORY / "docs" / "pictures"
COLUMNS = 100
PROMPTS = (b"\n> ", b"[g]ive up: ")
"""How the output of a command ends when it waits for a line."""
PUBLIC_URL = "http://127.0.0.1:8000"
"""The address in the pictures: the default one."""

FONTS = """\
<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <include>/etc/fonts/fonts.conf</include>
  <match target="pattern">
    <test name="family" qual="any"><string>sans-serif</string></test>
    <edit name="family" mode="prepend" binding="strong"><string>Liberation Sans</string></edit>
  </match>
</fontconfig>
"""
"""A machine without a desktop has no font for ``system-ui``, and shows DejaVu Sans instead."""

BROKEN_RUN = """\
{"type": "RUN_STARTED", "threadId": "t1", "runId": "r1", "protocolVersion": "1.1"}
{"type": "TEXT_MESSAGE_START", "messageId": "m1", "role": "assistant"}
{"type": "TEXT_MESSAGE_CONTENT", "messageId": "m1", "delta": "Hello", "colour": "red"}
{"type": "STATE_DELTA", "delta": [{"op": "replace", "path": "/recipe/title", "value": "Soup"}]}
{"type": "TOOL_CALL_END", "toolCallId": "c1"}
{"type": "RUN_FINISHED", "threadId": "t1", "runId": "r1"}
"""


def take_pictures() -> None:
    """Take all pictures."""
    require_tools()
    PICTURES.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "run.jsonl").write_text(BROKEN_RUN)
        (Path(folder) / "fonts.conf").write_text(FONTS)
        server = AguilaProcess(Path(folder), None)
        try:
            with sync_playwright() as playwright:
                fonts = {**os.environ, "FONTCONFIG_FILE": str(Path(folder) / "fonts.conf")}
                browser = playwright.chromium.launch(executable_path=CHROMIUM, args=CHROMIUM_FLAGS, env=fonts)
                take_pages(browser, server.url)
                take_violations(browser, Path(folder))
                browser.close()
            take_terminals(server.url, Path(folder))
        finally:
            server.stop()


# The page


def take_pages(browser: Browser, url: str) -> None:
    """Take the chat and the inspector in front of the demo."""
    with opened(browser, url, "light", height=900) as chat:
        chat.ask("Show me the state of the soup")
        chat.ask("What is the weather in Lisbon? Use your tools.")
        chat.ask("What is six times seven? Show your reasoning.")
        chat.page.get_by_text("Thought for").click()
        chat.write("Mail it to Ada, with my approval")
        expect(chat.question()).to_be_visible()
        chat.is_idle()
        save(chat.page, "chat")

        chat.page.set_viewport_size({"width": 1280, "height": 800})
        play(url, "soup", "run-1", "Show me the state of the soup")
        run = InspectorPage(chat.page, f"{url}/#/inspect/soup/run-1")
        expect(run.bar()).to_contain_text("success")
        run.tab("State")
        run.rows().filter(has_text="STATE_DELTA").nth(1).click()
        expect(chat.page.locator(".tree .changed")).to_contain_text("potato")
        save(chat.page, "inspector")

    with opened(browser, url, "dark") as chat:
        chat.ask("Write some text")
        chat.write("Let your subagents look for eagles")
        chat.sees("My team has spoken.")
        chat.is_idle()
        save(chat.page, "chat-dark")


def take_violations(browser: Browser, folder: Path) -> None:
    """Take the findings on a recording that breaks rules, as ``aguila inspect`` opens it."""
    with (
        aguila_serve(folder, "run.jsonl", "--no-open", command_name="inspect") as server,
        opened(browser, f"{server.url}/?recording=run.jsonl#/inspect", "dark") as chat,
    ):
        run = InspectorPage(chat.page, chat.page.url)
        expect(run.events()).to_contain_text("TOOL_CALL_END")
        run.tab("Violations")
        expect(chat.page.get_by_role("tabpanel")).to_contain_text("STR-3")
        save(chat.page, "violations-dark")


def play(url: str, thread_id: str, run_id: str, text: str) -> None:
    """Play a run under ids that a reader can read."""
    message = {"id": "user-1", "role": "user", "content": text}
    body = {"threadId": thread_id, "runId": run_id, "protocolVersion": "1.1", "messages": [message]}
    httpx2.post(url, json=body, timeout=60).raise_for_status()


@contextmanager
def opened(browser: Browser, url: str, scheme: str, height: int = 800) -> Iterator[ChatPage]:
    """Open the page in a new browser profile."""
    size = {"width": 1280, "height": height}
    context = browser.new_context(viewport=size, device_scale_factor=1, color_scheme=scheme, locale="en-GB")
    page = context.new_page()
    page.goto(url)
    yield ChatPage(page, url, [])
    context.close()


def save(page: Page, name: str) -> None:
    """Write a picture of the page, without the caret and with animations at their end."""
    page.mouse.move(0, 0)
    write(f"{name}.png", page.screenshot(animations="disabled", caret="hide"))


# The terminal


def take_terminals(url: str, folder: Path) -> None:
    """Take ``aguila chat`` with the demo, and ``aguila check`` on a recording that breaks rules."""
    typed = ["Use your tools", "reasoning, please", "state, please", "Send a mail, with my approval", "y"]
    save_terminal("terminal-chat", in_terminal(["chat", url, "--thread", "eagles"], typed, folder), url)
    save_terminal("terminal-check", in_terminal(["check", "run.jsonl"], [], folder), url)


def in_terminal(arguments: Sequence[str], typed: Sequence[str], folder: Path) -> str:
    """Run a command of Aguila in a terminal, typing a line at each prompt, and return what the terminal received."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, COLUMNS, 0, 0))
    (folder / "inputrc").write_text("set enable-bracketed-paste off\n")
    environment = {**os.environ, "TERM": "xterm-256color", "INPUTRC": str(folder / "inputrc")}
    command = [sys.executable, "-m", "aguila", *arguments]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=folder, env=environment)
    os.close(theirs)
    lines = iter([*typed, "/quit"])
    received = b""
    try:
        while piece := read(ours):
            received += piece
            if received.endswith(PROMPTS):
                os.write(ours, f"{next(lines)}\n".encode())
    finally:
        process.kill()
        process.wait(60)
        os.close(ours)
    shown = f"$ aguila {' '.join(arguments)}\n{received.decode()}"
    return shown.replace("\r\n", "\n").partition("> /quit")[0]


def read(terminal: int) -> bytes:
    """Read from a terminal. Return nothing when the process on its other side has ended."""
    if not select.select([terminal], [], [], 60)[0]:
        raise TimeoutError("the command has printed nothing for 60 s; it waits at a prompt that PROMPTS does not have")
    try:
        return os.read(terminal, 65536)
    except OSError:  # Linux raises it when the other side is closed
        return b""


def save_terminal(name: str, output: str, url: str) -> None:
    """Write output of a command as a picture of a terminal."""
    console = Console(record=True, width=COLUMNS, file=StringIO(), force_terminal=True)
    console.print(Text.from_ansi(output.replace(url, PUBLIC_URL).rstrip()))
    svg = console.export_svg(title="aguila", unique_id=name)
    svg = re.sub(r"\s*@font-face \{.*?\}", "", svg, flags=re.DOTALL)  # rich's fonts come from another host
    write(f"{name}.svg", svg.replace("Fira Code, ", "").encode())


def write(name: str, data: bytes) -> None:
    """Write a picture. ``tests/docs/test_pictures.py`` checks its size and that it contains no path."""
    (PICTURES / name).write_bytes(data)
    print(f"{name}: {len(data):,} bytes")


if __name__ == "__main__":
    try:
        take_pictures()
    except MissingTool as error:
        sys.exit(str(error))
