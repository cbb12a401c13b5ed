"""The options of earlier versions, and where each is now."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

APP_OPTIONS: Final = {
    "on_disconnect": "cancel_unwatched_after=5",
    "disconnect_grace": "cancel_unwatched_after=5",
    "lease": "timing=Timing(lease=30)",
    "cancel_grace": "timing=Timing(cancel_grace=5)",
    "store_patience": "timing=Timing(store_patience=5)",
    "allow_system_messages": "trust=Trust(system_messages=True)",
    "unknown_history": 'trust=Trust(unknown_history="drop")',
    "state_keys": 'trust=Trust(state_keys=["draft"])',
    "allowed_media": "trust=Trust(media=AllowedMedia(...))",
    "merge_deltas": "sends=Sends(merge_deltas=False)",
    "echo_input": "sends=Sends(echo_input=True)",
    "undeclared_peers": 'sends=Sends(undeclared_peers="subagents")',
    "one_text_at_a_time": 'sends=Sends(undeclared_peers="parallel") for parallel texts',
    "name": 'capabilities={"identity": {"name": "..."}}',
    "durability": 'store="sqlite:///path?durability=power"',
    "coalesce": "none: events are buffered for 5 ms",
}
"""The removed options of ``App``."""

LIMITS: Final = {
    "at_once": "buffered=64 << 20",
    "unsent": "buffered=64 << 20",
    "runs_per_peer": "runs_per_address=20",
    "threads_per_scope": "per_scope=Quota(threads=10_000)",
    "files_per_scope": "per_scope=Quota(files=1_000)",
    "bytes_per_scope": "per_scope=Quota(bytes=1 << 30)",
    "threads": "total=Quota(threads=1_000_000)",
    "files": "total=Quota(files=100_000)",
    "bytes": "total=Quota(bytes=100 << 30)",
    "anonymous_threads": "anonymous=Quota(threads=100_000)",
    "anonymous_files": "anonymous=Quota(files=10_000)",
    "anonymous_bytes": "anonymous=Quota(bytes=4 << 30)",
    "threads_per_peer": "per_address=Quota(threads=2_000)",
    "bytes_per_peer": "per_address=Quota(bytes=1 << 30)",
    "messages": "none: a request may have 10,000 messages",
    "tools": "none: a request may have 1,000 tools",
    "resume": "none: a request may have 1,000 answers",
    "id_length": "none: an id may have 512 characters",
    "held": "none: a response holds back at most 256 KiB",
    "write_seconds": "none: a reader that accepts nothing for 60 s is disconnected",
}
"""The removed fields of ``Limits``."""


def refuse_removed(holder: str, given: Iterable[str], removed: Mapping[str, str]) -> None:
    """Raise ``TypeError`` for an argument that ``holder`` does not take, with its new place if it has one."""
    for name in given:
        if name not in removed:
            raise TypeError(f"{holder}() got an unexpected keyword argument {name!r}")
        place = removed[name]
        now = f"has no replacement: {place.removeprefix('none: ')}" if place.startswith("none: ") else f"is now {place}"
        raise TypeError(f"{holder}({name}=...) is gone; it {now}")
