"""Make token usage by the protocol's rules (USE-2 to USE-5). The reader of each stream passes in the counts."""

from __future__ import annotations

from typing import Any

from aguila.protocol import TokenUsage


def token_usage(
    provider: str,
    model: str,
    *,
    input_tokens: int | None,
    output_tokens: int | None,
    reasoning: int | None = None,
    cached: int | None = None,
    cache_written: int | None = None,
) -> TokenUsage:
    """Make usage whose totals include their parts.

    Unknown counts stay absent, and so does a sum with an unknown part.
    """
    total = None if input_tokens is None or output_tokens is None else input_tokens + output_tokens
    return TokenUsage(
        provider=provider,
        model=model,
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        total_tokens=total,
        reasoning_tokens=reasoning,
        cached_input_tokens=cached,
        cache_write_input_tokens=cache_written,
    )


def count(holder: Any, name: str) -> int | None:
    """Return a count of an SDK object; None if it is missing or not a count."""
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def include_reasoning(
    output_tokens: int | None, reasoning: int | None, input_tokens: int | None, total: int | None
) -> int | None:
    """Return the output tokens including reasoning (USE-3).

    Some servers count reasoning separately. Then their total is larger, or the reasoning is larger than the output.
    """
    if output_tokens is None or reasoning is None or reasoning == 0:
        return output_tokens
    is_beside = reasoning > output_tokens or total == add_counts(input_tokens, output_tokens, reasoning)
    return output_tokens + reasoning if is_beside else output_tokens


def add_counts(*counts: int | None) -> int | None:
    """Add up the known counts; None if there are none."""
    known = [one for one in counts if one is not None]
    return sum(known) if known else None
