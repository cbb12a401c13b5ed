"""Layer: providers. Tokens by the protocol's accounting (USE-2 to USE-5).

Below: the protocol. Above: every provider, which knows what its own counts include.
"""

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
    """Usage whose totals include their parts. A count that nobody gave stays absent, and so does the sum with it."""
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
    """A count of an SDK's object; None if it is not there, or is no count."""
    value = getattr(holder, name, None)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def with_thoughts(
    output_tokens: int | None, reasoning: int | None, input_tokens: int | None, total: int | None
) -> int | None:
    """Output with its thoughts in it (USE-3). Some servers count them beside it: their total says so, or a part that
    is larger than its whole.
    """
    if output_tokens is None or reasoning is None or reasoning == 0:
        return output_tokens
    is_beside = reasoning > output_tokens or total == added(input_tokens, output_tokens, reasoning)
    return output_tokens + reasoning if is_beside else output_tokens


def added(*counts: int | None) -> int | None:
    """The sum of the counts that are known; None if none is."""
    known = [one for one in counts if one is not None]
    return sum(known) if known else None
