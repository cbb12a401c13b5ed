"""Run a command in a pseudo-terminal: read what it shows, type into it."""

from __future__ import annotations

import os
import pty
import re
import select
import signal
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from waiting import DEADLINE

from processes.forked import ForkedProcess

_PATIENCE = 2.0
"""Seconds until a key is pressed again."""
_STYLE = re.compile(r"\x1b\[[0-9;?]*[a-zA-Z]")


class Terminal:
    """A context manager. ``screen`` is all that was shown, ``plain`` the same without colours and bell."""

    def __init__(self, command: Sequence[str], folder: Path, **environment: str) -> None:
        self._master, self._slave = pty.openpty()
        # A session leader that opens a terminal controls it: only so does Ctrl-C mean anything.
        streams = [Path(os.ttyname(self._slave))] * 3
        environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "200", **environment}
        self.process = ForkedProcess(command, folder, streams, environment)
        self.screen = ""
        self._seen = 0

    @property
    def plain(self) -> str:
        return _STYLE.sub("", self.screen).replace("\r\n", "\n").replace("\r", "")

    def expect(self, text: str, *, pressing: bytes = b"") -> str:
        """Wait until this is shown, after what was expected before. Gives what was shown up to it.

        ``pressing`` is pressed every two seconds until then: an interrupt that comes between readline's prompt and its
        first look at the keyboard is only noticed when the line is complete, or with the next interrupt.
        """
        deadline = time.monotonic() + DEADLINE
        again = time.monotonic() + _PATIENCE
        while (found := self.plain.find(text, self._seen)) < 0:
            assert time.monotonic() < deadline, f"{text!r} was not shown:\n{self.plain[self._seen :]}"
            assert self._read(0.1) or self.process.poll() is None, f"it ended without {text!r}:\n{self.plain}"
            if pressing and time.monotonic() >= again:
                self.press(pressing)
                again = time.monotonic() + _PATIENCE
        before = self.plain[self._seen : found]
        self._seen = found + len(text)
        return before

    def type(self, line: str) -> None:
        os.write(self._master, line.encode() + b"\n")

    def press(self, key: bytes) -> None:
        os.write(self._master, key)

    def ended(self, pressing: bytes = b"") -> int:
        """Wait for the end; gives the exit status.

        ``pressing`` is pressed now and every two seconds until it has an effect, as in ``expect``.
        """
        deadline = time.monotonic() + DEADLINE
        again = time.monotonic()
        while self.process.poll() is None:
            assert time.monotonic() < deadline, f"it did not end:\n{self.plain}"
            if pressing and time.monotonic() >= again:
                self.press(pressing)
                again = time.monotonic() + _PATIENCE
            self._read(0.05)
        while self._read(0):
            pass
        return self.process.wait()

    def _read(self, patience: float) -> bool:
        if not select.select([self._master], [], [], patience)[0]:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError:  # on Linux: the other end is closed
            return False
        self.screen += data.decode("utf-8", "replace")
        return bool(data)

    def __enter__(self) -> Terminal:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait(DEADLINE)
        os.close(self._master)
        os.close(self._slave)
