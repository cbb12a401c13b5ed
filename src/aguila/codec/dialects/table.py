"""What each published generation of @ag-ui/client accepts.

Every row is derived from that version's own schemas and is tested with them in Node
(``tests/interop/test_dialects_node.py``). A version between two rows gets the older one.
"""

from __future__ import annotations

import re
from typing import Final, Literal

import msgspec

Version = tuple[int, int, int]

_VERSION: Final = re.compile(r"([0-9]{1,9})\.([0-9]{1,9})(?:\.([0-9]{1,9}))?")


class Dialect(msgspec.Struct, frozen=True, kw_only=True):
    """What one generation of clients can read. The defaults describe protocol 1.1."""

    name: str
    """The version, or ``undeclared``."""
    protocol_version: Literal["own", "1.0", "none"] = "own"
    """What RUN_STARTED declares: the version of the event, at most ``1.0``, or nothing."""
    encrypted_value_types: bool = True
    subagents: bool = True
    """Whether SUBAGENT_* events and ``subagentRunId`` are sent."""
    outcomes: frozenset[str] | None = None
    """The kinds of RUN_FINISHED.outcome that are sent; None for all of them, with ``pendingToolCallIds``."""
    tool_parts: bool = True
    """Whether a tool result may be a list of parts."""
    user_parts: Literal["text", "binary", "typed", "any"] = "any"
    """How files of a user message are written: not at all, as ``binary``, as data or URL, or from any source."""
    complete_inputs: bool = False
    """Whether the input on RUN_STARTED must have ``tools`` and ``context``."""
    state_baseline: bool = False
    """Whether a STATE_SNAPSHOT must precede the first STATE_DELTA of a run."""
    patches: bool = True
    """Whether deltas can be applied. In Node, the ES modules of 0.0.45 to 0.0.50 cannot: they get snapshots instead."""
    final_state: bool = False
    """Whether a STATE_SNAPSHOT follows the last STATE_DELTA of a run, for undeclared clients that cannot apply it."""
    reasoning: Literal["none", "thinking", "reasoning"] = "reasoning"
    meta_events: bool = False
    """Whether a CUSTOM event named ``meta:...`` is sent as META. No published client reads META; drafts of 2025 do."""
    activities: bool = True
    text_roles: bool = True
    """Whether streamed text may have another role than ``assistant``."""
    implied_text_role: bool = True
    """Whether the start of a text may omit its role. The .NET SDK 0.0.5, which declares no version, fails without."""
    empty_deltas: bool = True
    parallel_items: bool = True
    """Whether several texts, or several tool calls, may be open at once. Otherwise the server sequences them."""

    @property
    def is_current(self) -> bool:
        """Whether nothing has to be translated."""
        return self is CURRENT


CURRENT: Final = Dialect(name="1.1")

_INTERRUPTS: Final = frozenset({"interrupt"})

_V1_0: Final = Dialect(name="1.0", protocol_version="1.0", encrypted_value_types=False)

_V0_0_59: Final = Dialect(
    name="0.0.59",
    protocol_version="none",
    encrypted_value_types=False,
    outcomes=_INTERRUPTS,
    tool_parts=False,
    user_parts="typed",
    complete_inputs=True,
    state_baseline=True,
)
_V0_0_57: Final = msgspec.structs.replace(_V0_0_59, name="0.0.57", subagents=False)
_V0_0_53: Final = msgspec.structs.replace(_V0_0_57, name="0.0.53")
_V0_0_50: Final = msgspec.structs.replace(_V0_0_53, name="0.0.50", patches=False)
_V0_0_47: Final = msgspec.structs.replace(_V0_0_50, name="0.0.47", user_parts="binary", empty_deltas=False)
_V0_0_45: Final = msgspec.structs.replace(_V0_0_47, name="0.0.45")
_V0_0_41: Final = msgspec.structs.replace(_V0_0_45, name="0.0.41", patches=True, reasoning="thinking")
# 0.0.40 of the client depends on 0.0.39 of the schemas, which has neither activities nor parts.
_V0_0_40: Final = msgspec.structs.replace(_V0_0_41, name="0.0.40", user_parts="text", activities=False)
_V0_0_35: Final = msgspec.structs.replace(
    _V0_0_40,
    name="0.0.35",
    reasoning="none",
    text_roles=False,
    implied_text_role=False,
    parallel_items=False,
)

GENERATIONS: Final[dict[Version, Dialect]] = {
    (0, 0, 35): _V0_0_35,
    (0, 0, 40): _V0_0_40,
    (0, 0, 41): _V0_0_41,
    (0, 0, 45): _V0_0_45,
    (0, 0, 47): _V0_0_47,
    (0, 0, 50): _V0_0_50,
    (0, 0, 53): _V0_0_53,
    (0, 0, 57): _V0_0_57,
    (0, 0, 59): _V0_0_59,
    (1, 0, 0): _V1_0,
    (1, 1, 0): CURRENT,
}
"""Every generation, oldest first."""

UNDECLARED: Final = msgspec.structs.replace(
    _V0_0_57,
    name="undeclared",
    protocol_version="own",
    final_state=True,
    implied_text_role=False,
    parallel_items=False,
)
"""What 0.0.53 to 0.0.59, CopilotKit, assistant-ui, TDesign, ``AGUIChatClient`` and the .NET SDK can all read.

A client that declares no version is a 0.x client: 1.0.0 was the first to declare one (VER-8). RUN_STARTED keeps its
version (VER-2); these clients ignore the member.
"""

UNDECLARED_WITH_SUBAGENTS: Final = msgspec.structs.replace(UNDECLARED, subagents=True)
"""``UNDECLARED`` for clients that read SUBAGENT_* events (0.0.59)."""

UNDECLARED_PARALLEL: Final = msgspec.structs.replace(UNDECLARED, parallel_items=True)
"""``UNDECLARED`` for clients that tell parallel texts and calls apart, as ``@ag-ui/client`` does from 0.0.40 on."""

UNDECLARED_WITH_META: Final = msgspec.structs.replace(UNDECLARED, meta_events=True)
"""``UNDECLARED`` for clients that read META events, as drafts of the protocol did."""


def parse_version(text: str) -> Version | None:
    """Parse two or three numbers with dots between them. Return None for anything else."""
    found = _VERSION.fullmatch(text)
    return None if found is None else (int(found[1]), int(found[2]), int(found[3] or 0))


def parse_peer(text: str) -> Version | None:
    """Parse a protocol version (``1.0``) or the library version of a 0.x client (``0.0.57``).

    Return None for anything else. ``1.0.0`` is neither: protocol versions have two components (VER-3).
    """
    version = parse_version(text)
    return None if version is None or (version[0] > 0 and text.count(".") > 1) else version


def dialect_of(declared: str | None, undeclared: Dialect = UNDECLARED) -> Dialect:
    """Return the dialect for a client that declared this version, or none.

    A version that is newer, or cannot be interpreted, gets the current dialect (VER-4, VER-5).
    """
    if declared is None:
        return undeclared
    version = parse_peer(declared)
    if version is None:
        return CURRENT
    newest = _V0_0_35
    for first, dialect in GENERATIONS.items():
        if first <= version:
            newest = dialect
    return newest
