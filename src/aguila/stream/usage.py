"""Add up token usage (USE)."""

from __future__ import annotations

from collections.abc import Iterable

from aguila.protocol import TokenUsage

_COUNTS = (
    "input_tokens",
    "output_tokens",
    "total_tokens",
    "reasoning_tokens",
    "cached_input_tokens",
    "cache_write_input_tokens",
)


def aggregate_token_usage(entries: Iterable[TokenUsage]) -> list[TokenUsage]:
    """Add up usage per provider and model, in order of first appearance.

    A count that no entry has stays absent: unknown is not zero (USE-5).
    """
    sums: dict[tuple[str | None, str | None], dict[str, int]] = {}
    for entry in entries:
        counts = sums.setdefault((entry.provider, entry.model), {})
        for name in _COUNTS:
            count: int | None = getattr(entry, name)
            if count is not None:
                counts[name] = counts.get(name, 0) + count
    return [TokenUsage(provider=provider, model=model, **counts) for (provider, model), counts in sums.items()]
