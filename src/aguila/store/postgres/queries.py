"""The SQL that reads. Each function runs one statement, which sees one snapshot."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any, Final, Literal

from aguila.store import refusals
from aguila.store.columns import CANCEL, CANCEL_REQUESTS, READ_BYTES
from aguila.store.cursors import int_to_token
from aguila.store.encoding import check_cursor, decode_row, encodable, hash_member, index_value, inside_compacted
from aguila.store.feed import ThreadKey, cut
from aguila.store.polling import Stamps
from aguila.store.postgres.database.connections import Database
from aguila.store.records import (
    DEFAULT_AGENT,
    RECENT_THREADS,
    Batch,
    CancelRequest,
    InterruptRecord,
    Lease,
    MetadataFilter,
    RunRecord,
    ThreadSummary,
    Usage,
)

MAX_INDEXED: Final = 256
"""If more threads match a metadata filter, threads are read in the order of their last update until a page is full."""


def _token_at(thread: str, number: str) -> str:
    """Return SQL for the token of an event: that of its run, or of the last take-over before the event."""
    return f"""
(SELECT CASE WHEN o.first IS NULL THEN w.token ELSE o.token END
  FROM (SELECT x.first, x.token FROM aguila.runs x WHERE x.thread = {thread} AND x.first <= {number}
        ORDER BY x.first DESC LIMIT 1) w
  LEFT JOIN LATERAL (
    SELECT y.first, y.token FROM aguila.take_overs y WHERE y.thread = {thread} AND y.first > w.first
      AND y.first <= {number} ORDER BY y.first DESC LIMIT 1) o ON true)
"""  # noqa: S608 - our own names


# The columns of RUN and SUMMARY are in the order of the fields of RunRecord and ThreadSummary.
RUN = f"""
SELECT t.scope, t.thread_id, r.run_id, r.parent_run_id, r.fingerprint, r.first,
  coalesce(r.last, t.last), r.outcome, r.owner, r.epoch, r.lease_until, r.cancel_requested, r.started_at, r.ended_at,
  t.agent, r.sent_run_id, {_token_at("t.key", "coalesce(r.last, t.last)")}
FROM aguila.runs r JOIN aguila.threads t ON t.key = r.thread
"""  # noqa: S608 - our own names
RUN_BY_IDS = f"{RUN} WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3"
RUNS_BY_KEYS = f"{RUN.replace('SELECT', 'SELECT r.key,', 1)} WHERE r.key = ANY ($1::bigint[])"
RUNS_OF_THREAD = f"{RUN} WHERE t.scope = $1 AND t.thread_id = $2 ORDER BY r.key"
OPEN_RUN = """
SELECT r.key, r.cancel_requested FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running
WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3
"""
HELD_RUN = f"{OPEN_RUN} AND r.epoch = $4 AND r.owner = $5"

# The runs whose lease has expired, whose owner is gone, or whose lease lasts too long because the clock was set back.
EXPIRED = f"""
WITH held AS MATERIALIZED (
  SELECT (l.classid::bigint << 32) | l.objid::bigint AS lock FROM pg_locks l
  WHERE l.locktype = 'advisory' AND l.objsubid = 1 AND l.granted
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
)
{RUN.replace("SELECT", "SELECT r.lease_until <= n.now, r.lease_until > n.now + r.lease_seconds, r.lock,", 1)}
CROSS JOIN (SELECT aguila.time_of($1) AS now) n
WHERE r.key IN (SELECT running FROM aguila.threads WHERE running IS NOT NULL) AND (
  r.lease_until <= n.now OR r.lease_until > n.now + r.lease_seconds
  OR (r.incarnation = pg_postmaster_start_time() AND r.lock NOT IN (SELECT lock FROM held)))
ORDER BY r.lease_until
"""  # noqa: S608 - our own names
SHORTEN_LEASES = """
UPDATE aguila.runs r SET lease_until = n.now + r.lease_seconds FROM (SELECT aguila.time_of($1) AS now) n
WHERE r.lease_until > n.now + r.lease_seconds
  AND r.key IN (SELECT running FROM aguila.threads WHERE running IS NOT NULL)
"""
# The result is whether removed threads have left rows, because the process that removed them died, for example.
SHORTEN_VIEWERS = """
WITH shortened AS (
  UPDATE aguila.viewers v SET until = n.now + v.seconds FROM (SELECT aguila.time_of($1) AS now) n
  WHERE v.until > n.now + v.seconds
)
SELECT EXISTS (SELECT 1 FROM aguila.trash)
"""

COMPACTABLE = f"""
{RUN} WHERE r.outcome IS NOT NULL AND NOT r.compacted AND r.ended_at <= (SELECT aguila.time_of($1)) - $2
  AND NOT EXISTS (
  SELECT 1 FROM aguila.interrupts i
  LEFT JOIN aguila.runs s ON s.thread = i.thread AND s.run_id = i.claimed_by
  WHERE i.thread = r.thread AND (i.run_id = r.run_id OR i.claimed_by = r.run_id)
    AND (i.status <> 'settled' OR s.outcome IS NULL OR s.outcome NOT IN ('success', 'interrupt'))
) ORDER BY r.ended_at, r.key LIMIT $3
"""  # noqa: S608 - our own names

SUMMARY = f"""
SELECT t.thread_id, t.created_at, t.updated_at, t.last,
  (SELECT count(*) FROM aguila.runs r WHERE r.thread = t.key),
  (SELECT r.run_id FROM aguila.runs r WHERE r.key = t.running), t.touched, t.agent, d.title, t.archived, d.metadata,
  {_token_at("t.key", "t.last")}
FROM aguila.threads t LEFT JOIN aguila.details d ON d.thread = t.key
"""  # noqa: S608 - our own names
THREAD = f"{SUMMARY} WHERE t.scope = $1 AND t.thread_id = $2"
COUNT_MEMBERS = "SELECT count(*) FROM (SELECT 1 FROM aguila.details WHERE members @> ARRAY[$1::bigint] LIMIT $2) found"

LAST = "SELECT last FROM aguila.threads WHERE scope = $1 AND thread_id = $2"

# $3 is the cursor, $4 the last number wanted. The sums stop the read at $5 events or $6 bytes; octet_length() does not
# read a large value.
LOG = f"""
SELECT t.first, t.last, l.first, l.events, l.at, l.compacted, {_token_at("t.key", "l.last")}
FROM aguila.threads t LEFT JOIN LATERAL (
  SELECT b.first, b.last, b.events, b.at, b.compacted,
    sum(b.last - b.first + 1) OVER w - (b.last - b.first + 1) AS events_before,
    sum(octet_length(b.events)) OVER w - octet_length(b.events) AS bytes_before
  FROM (
    SELECT g.first, g.last, g.events, g.at, g.compacted FROM aguila.log g
    WHERE g.thread = t.key AND g.last > $3 ORDER BY g.last LIMIT $5
  ) b
  WHERE b.first <= coalesce($4, t.last) OR b.compacted IS NOT NULL
  WINDOW w AS (ORDER BY b.last)
) l ON l.events_before < $5 AND l.bytes_before < $6
WHERE t.scope = $1 AND t.thread_id = $2 ORDER BY l.last
"""  # noqa: S608 - our own names

LOG_OF_THREAD = f"""
SELECT g.first, g.events, g.at, {_token_at("g.thread", "g.last")} FROM aguila.log g WHERE g.thread = $1 ORDER BY g.last
"""  # noqa: S608 - our own names
TOKEN = f"""
SELECT t.first, t.last, l.last, l.compacted, {_token_at("t.key", "l.last")} FROM aguila.threads t LEFT JOIN LATERAL (
  SELECT g.last, g.compacted FROM aguila.log g WHERE g.thread = t.key AND g.last >= $3 ORDER BY g.last LIMIT 1
) l ON true WHERE t.scope = $1 AND t.thread_id = $2
"""  # noqa: S608 - our own names

INTERRUPTS = """
SELECT i.interrupt_id, i.run_id, i.status, i.body, i.claimed_by
FROM aguila.interrupts i JOIN aguila.threads t ON t.key = i.thread
WHERE t.scope = $1 AND t.thread_id = $2 ORDER BY i.key
"""
INTERRUPT_THREAD = """
SELECT t.thread_id FROM aguila.interrupts i JOIN aguila.threads t ON t.key = i.thread
WHERE i.scope = $1 AND i.interrupt_id = $2 ORDER BY i.key DESC LIMIT 1
"""
RUN_THREAD = """
SELECT t.thread_id
FROM (SELECT key, thread_id, touched FROM aguila.threads WHERE scope = $1 ORDER BY touched DESC LIMIT $3) t
JOIN aguila.runs r ON r.thread = t.key AND r.run_id = $2 ORDER BY t.touched DESC LIMIT 1
"""
SESSION = """
SELECT s.body FROM aguila.sessions s JOIN aguila.threads t ON t.key = s.thread WHERE t.scope = $1 AND t.thread_id = $2
"""
EFFECTS = """
SELECT e.name, e.value FROM aguila.effects e JOIN aguila.threads t ON t.key = e.thread
WHERE t.scope = $1 AND t.thread_id = $2 AND e.root_run_id = $3 ORDER BY e.key
"""
WATCHED = """
SELECT 1 FROM aguila.threads t JOIN aguila.runs r ON r.key = t.running JOIN aguila.viewers v ON v.run = r.key
WHERE t.scope = $1 AND t.thread_id = $2 AND r.run_id = $3 AND v.until > aguila.time_of($4) - $5 LIMIT 1
"""
STAMPS = """
SELECT t.scope, t.thread_id, t.last, t.first, r.run_id, r.epoch, r.owner, r.cancel_requested
FROM unnest($1::text[], $2::text[]) AS g(scope, thread_id)
JOIN aguila.threads t ON t.scope = g.scope AND t.thread_id = g.thread_id LEFT JOIN aguila.runs r ON r.key = t.running
"""


def run_record(row: Sequence[Any]) -> RunRecord:
    """Convert a row of ``RUN``."""
    fields = dict(zip(RunRecord.__struct_fields__, row, strict=True))
    fields["cancel_requested"] = fields["cancel_requested"] == CANCEL["always"]
    fields["token"] = int_to_token(fields["token"])
    return RunRecord(**fields)


def summary(row: Sequence[Any]) -> ThreadSummary:
    """Convert a row of ``SUMMARY``."""
    fields = dict(zip(ThreadSummary.__struct_fields__, row, strict=True))
    fields["token"] = int_to_token(fields["token"])
    return ThreadSummary(**fields)


def interrupt_record(row: Sequence[Any]) -> InterruptRecord:
    """Convert a row of ``INTERRUPTS``."""
    return InterruptRecord(interrupt_id=row[0], run_id=row[1], status=row[2], body=row[3], claimed_by=row[4])


async def read_run(db: Database, scope: str, thread_id: str, run_id: str) -> RunRecord:
    """Return a run. Raises ``NotFound``."""
    row = await db.fetchrow(RUN_BY_IDS, scope, thread_id, run_id)
    if row is None:
        raise refusals.no_run(thread_id, run_id)
    return run_record(tuple(row))


async def read_runs_by_keys(db: Database, keys: Sequence[int]) -> dict[int, RunRecord]:
    """Return the runs that exist."""
    return {row[0]: run_record(tuple(row)[1:]) for row in await db.fetch(RUNS_BY_KEYS, keys)}


async def read_cancel_request(db: Database, lease: Lease) -> CancelRequest | None:
    """Return the cancel request of a run; "always" if the lease is stale."""
    row = await db.fetchrow(HELD_RUN, lease.scope, lease.thread_id, lease.run_id, lease.epoch, lease.owner)
    return "always" if row is None else CANCEL_REQUESTS[row[1]]


async def read_settled_run(db: Database, scope: str, thread_id: str, run_id: str) -> RunRecord | None:
    """Return the run, or None if it has an unanswered ``unwatched`` request. Raises ``NotFound``."""
    row = await db.fetchrow(RUN_BY_IDS, scope, thread_id, run_id)
    if row is None:
        raise refusals.no_run(thread_id, run_id)
    is_unanswered = row["outcome"] is None and row["cancel_requested"] == CANCEL["unwatched"]
    return None if is_unanswered else run_record(tuple(row))


async def read_log(
    db: Database, scope: str, thread_id: str, after: int, until: int | None, limit: int
) -> tuple[Sequence[Batch], int]:
    """Return batches after a cursor, and the newest sequence number. Raises ``NotFound``, ``CursorExpired``."""
    most = 2**63 - 1
    rows = await db.fetch(LOG, scope, thread_id, min(after, most), until and min(until, most), limit, READ_BYTES)
    if not rows:
        raise refusals.no_thread(thread_id)
    first, last = rows[0][0], rows[0][1]
    after = check_cursor(after, first, last)
    stop = last if until is None else min(until, last)
    if after < last and rows[0][5] is not None and rows[0][5] <= after:
        raise inside_compacted(after)
    found = [row for row in rows if row[2] is not None and row[2] <= stop and after < stop]
    return [cut(Batch(row[2], decode_row(row[3]), row[4], int_to_token(row[6])), after, stop) for row in found], last


async def read_token(db: Database, scope: str, thread_id: str, number: int) -> str:
    """Return the token of an event. Raises ``NotFound``, ``CursorExpired``."""
    row = await db.fetchrow(TOKEN, scope, thread_id, min(number, 2**63 - 1))
    if row is None:
        raise refusals.no_thread(thread_id)
    first, last, row_last, compacted, token = row
    number = check_cursor(number, first, last)
    if number < first:
        return ""
    if compacted is not None and row_last != number:
        raise inside_compacted(number)
    return int_to_token(token)


async def read_thread(db: Database, scope: str, thread_id: str) -> ThreadSummary:
    """Return the summary of a thread. Raises ``NotFound``."""
    row = await db.fetchrow(THREAD, scope, thread_id)
    if row is None:
        raise refusals.no_thread(thread_id)
    return summary(tuple(row))


async def list_threads(
    db: Database,
    scope: str,
    limit: int,
    before: int | None,
    agent: str | None,
    archived: bool | None,
    metadata: MetadataFilter | None,
) -> Sequence[ThreadSummary]:
    """Return threads of a scope, last updated first. None selects every agent, or archived threads and others."""
    if metadata is None:
        rows = await db.fetch(threads_statement(agent, archived, None), scope, below(before), limit, *_present(agent))
        return [summary(tuple(row)) for row in rows]
    value = None if metadata.value is None else index_value(metadata.value)
    member = hash_member(scope, encodable(metadata.key), value)
    ((count,),) = await db.fetch(COUNT_MEMBERS, member, MAX_INDEXED)
    statement = threads_statement(agent, archived, "rare" if count < MAX_INDEXED else "common")
    found: list[ThreadSummary] = []
    position = below(before)
    while len(found) < limit:  # hashes may be equal by chance, so a page may need another read
        rows = await db.fetch(statement, scope, position, limit, *_present(agent), member)
        page = [summary(tuple(row)) for row in rows]
        found += islice((one for one in page if metadata.matches(one.metadata)), limit - len(found))
        if len(page) < limit:
            break
        position = page[-1].position
    return found


def below(before: int | None) -> int:
    """Return the position below which a page of threads begins; None is the first page."""
    return 2**62 if before is None else before


def _present(agent: str | None) -> Sequence[str]:
    return () if agent is None else (agent,)


def threads_statement(agent: str | None, archived: bool | None, member: Literal["rare", "common"] | None) -> str:
    """Return the statement that lists threads with these filters. Its last arguments are the agent and the hash.

    ``member``: the threads with the hash are read first and sorted if they are rare. If they are common, the threads
    are read in the order of their last update until the page is full.
    """
    # The conditions of the partial indexes are written out: an index is used only if a query implies its condition.
    where = "t.scope = $1 AND t.touched < $2"
    if agent is not None:
        where += " AND t.agent = $4" + ("" if agent == DEFAULT_AGENT else " AND t.agent <> 'default'")
    if archived is not None:
        where += f" AND {'' if archived else 'NOT '}t.archived"
    table = SUMMARY
    if member is not None:
        hashed = f"ARRAY[${4 if agent is None else 5}::bigint]"
        if member == "rare":
            rare = f"(SELECT * FROM aguila.details WHERE members @> {hashed} OFFSET 0) d JOIN aguila.threads t"  # noqa: S608
            table = SUMMARY.replace("aguila.threads t LEFT JOIN aguila.details d", rare)
        else:
            where += f" AND d.members @> {hashed}"
    return f"{table} WHERE {where} ORDER BY t.touched DESC LIMIT $3"


async def find_run_thread(db: Database, scope: str, run_id: str) -> str | None:
    """Return the id of the thread with this run, among those updated last."""
    row = await db.fetchrow(RUN_THREAD, scope, run_id, RECENT_THREADS)
    return None if row is None else row[0]


async def read_stamps(db: Database, keys: Sequence[ThreadKey]) -> Stamps:
    """Return the state of each thread that a poll compares."""
    rows = await db.fetch(STAMPS, [scope for scope, _ in keys], [thread_id for _, thread_id in keys])
    return {(row[0], row[1]): tuple(row)[2:] for row in rows}


async def read_snapshot(db: Database) -> str:
    """Return text that is another one after each commit: the set of transactions whose changes are visible."""
    row = await db.fetchrow("SELECT concat_ws(' ', pg_postmaster_start_time(), pg_current_snapshot())")
    return row[0]


USAGE = "SELECT threads, files, bytes FROM aguila.usage_of($1)"


async def read_usage(db: Database, scope: str | None) -> Usage:
    """Return the usage of a scope; without a scope, that of all scopes, without the writes of open runs."""
    return usage(await db.fetchrow(USAGE, scope))


def usage(row: Sequence[Any]) -> Usage:
    """Convert a row of ``USAGE``."""
    return Usage(threads=row[0], files=row[1], bytes=row[2])
