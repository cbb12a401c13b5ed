"""Which functions of Aguila are called, in order, under ``sys.setprofile``."""

from __future__ import annotations

import dis
import sys
from functools import cache
from pathlib import Path
from types import CodeType, FrameType

import aguila

_SOURCE = str(Path(aguila.__file__).parent) + "/"
_INLINE = frozenset({"<listcomp>", "<setcomp>", "<dictcomp>", "<genexpr>", "<lambda>", "<module>"})
"""Code that is read with the function around it, or that runs once."""


def _is_opaque(code: CodeType) -> bool:
    """Return whether a call counts as one, with everything below it: of a store, an ``EventWriter``, the history."""
    return (
        code.co_filename.startswith((_SOURCE + "store/", _SOURCE + "stream/writer.py"))
        or code.co_qualname.partition(".")[0] == "Threads"
    )


def _is_returned_by_store(code: CodeType) -> bool:
    """Return whether this is an iterator that a store returned: it belongs to the call that returned it."""
    return code.co_filename == _SOURCE + "store/live.py"


@cache
def _beginning(code: CodeType) -> int:
    return next(one.offset for one in dis.get_instructions(code) if one.opname == "RESUME")


def _is_resumed(frame: FrameType) -> bool:
    """Return whether a coroutine or generator continues, for which there is a "call", too."""
    return frame.f_lasti > _beginning(frame.f_code)


class CallPath:
    """Collects the functions below ``src/aguila`` that this thread calls between ``start`` and ``stop``.

    A function counts once. One that was called before and only continues does not count. Comprehensions and lambdas
    belong to the function around them. Of a store, an ``EventWriter`` and ``Threads`` only the entry counts, not
    what it calls.
    """

    def __init__(self, found: dict[CodeType, None] | None = None) -> None:
        self._found = {} if found is None else found

    def copy(self) -> CallPath:
        """Return what was found so far."""
        return CallPath(dict(self._found))

    def start(self) -> None:
        sys.setprofile(self._on_event)

    def stop(self) -> None:
        sys.setprofile(None)

    def _on_event(self, frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event != "call" or code in self._found or not code.co_filename.startswith(_SOURCE):
            return
        if code.co_name in _INLINE or _is_resumed(frame) or _is_returned_by_store(code):
            return
        caller = frame.f_back
        while caller is not None:
            if caller.f_code.co_filename.startswith(_SOURCE) and _is_opaque(caller.f_code):
                return
            caller = caller.f_back
        self._found[code] = None

    @property
    def functions(self) -> list[tuple[str, str]]:
        """The file and the name of each function, in the order of their first calls."""
        return [(code.co_filename.removeprefix(_SOURCE), code.co_qualname) for code in self._found]

    @property
    def size(self) -> tuple[int, int]:
        """How many functions in how many files. A store counts as one file."""
        return len(self._found), len({"store" if file.startswith("store/") else file for file, _ in self.functions})

    def describe(self) -> str:
        """Return the chain as text, the name of a file only where it changes."""
        lines: list[str] = []
        last = ""
        for file, name in self.functions:
            lines.append(f"  {'' if file == last else file:<46} {name}")
            last = file
        return "\n".join(lines)
