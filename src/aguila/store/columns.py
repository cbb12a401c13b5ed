"""Constants that the stores in SQLite and PostgreSQL share."""

from __future__ import annotations

from typing import Final

from aguila.store.records import CancelRequest

READ_BYTES: Final = 64 * 1024
"""Bytes after which a read stops, whatever its limit: a reader that is suspended keeps them in memory."""

CANCEL: Final[dict[CancelRequest | None, int]] = {None: 0, "always": 1, "unwatched": 2}
"""The values of the column ``runs.cancel_requested``."""

CANCEL_REQUESTS: Final[dict[int, CancelRequest | None]] = {number: request for request, number in CANCEL.items()}
