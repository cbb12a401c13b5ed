"""Our consumer against the official client, on random streams: same verdict, same messages, state, runs and events.

The streams are those of ``broken_streams``. The client, ``@ag-ui/client`` 1.0.0, runs in one Node process. After a
rejection only the verdict is compared: the client then discards what it had not applied yet. Numbers are compared by
value, since JSON has one kind of them; everything else is compared strictly, absent members included.

Deliberate differences are the rows of ``ROWS``, each with its rule and reason. A row says from the raw stream alone
whether its cause is there, and what it may excuse: which of the two refuses, or how to read both outcomes so that they
must be equal again. A row never excuses what is left different after that.

As a script: ``python tests/interop/differential/differential.py --count 20000 --seed 1 [--write]`` prints the report,
and with ``--write`` puts it into ``report.md``.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

sys.path.append(str(Path(__file__).parents[2] / "support"))

import msgspec
from causes import (
    ASPECTS,
    CHUNKS,
    EVENT_TYPES,
    INHERITED,
    Outcome,
    any_operation,
    any_part,
    anywhere,
    as_doubles,
    changes_scalar,
    given,
    has_big_integer,
    has_infinity,
    has_old_answer,
    has_older_null,
    has_unknown_word,
    host_shares_id,
    interrupts,
    is_cut_off,
    is_object,
    is_odd_index,
    known,
    lacks_id,
    lacks_kind,
    loses_activity,
    moves_document,
    moves_within_array,
    of,
    read_cut_off,
    repeats_id_in_list,
    repeats_result,
    result_part,
    result_shares_id,
    resumes,
    steps,
    thinking,
    with_counted_ids,
    with_input_defaults,
    without_kept,
    without_other_sources,
    without_proto,
    without_timestamps,
    without_value_type,
    writes_onto_parts,
)
from processes.node import FOLDER, node_path
from streams.broken_streams import KINDS, TEXT_DAMAGE, Case, Raw, random_case

from aguila.codec.json.decoder import decode
from aguila.errors import ProtocolError, StreamTruncated
from aguila.protocol import Event, Message
from aguila.stream.consumer import Consumer
from aguila.stream.conversation import Conversation, ConversationRun

REPORT = Path(__file__).with_name("report.md")


# The two sides


def ours(case: Case) -> Outcome:
    """Return the outcome of a stream in our consumer."""
    messages: list[Message] = decode(json.dumps(case.messages), list[Message])
    ids = iter(range(1_000_000))
    consumer = Consumer(
        messages=messages,
        state=deepcopy(case.state),
        warn=lambda notice: None,
        new_id=lambda: f"00000000-0000-4000-8000-{next(ids):012}",
    )
    events: list[Event] = []
    try:
        for raw in _raw(case):
            events += consumer.feed(raw)
        conversation, verdict = consumer.close(), "accepted"
    except StreamTruncated:
        conversation, verdict = consumer.conversation, "truncated"
    except ProtocolError as error:
        return Outcome("rejected", f"{error.rule} {error}")
    return _outcome(verdict, conversation, events)


def _raw(case: Case) -> Iterable[str | bytes | Raw]:
    """Return the stream in one of the forms that a consumer takes; text that is no JSON object has no other form."""
    if case.seed % 3 == 0 or not TEXT_DAMAGE.keys().isdisjoint(case.damage):
        return case.texts
    return map(str.encode if case.seed % 3 == 1 else json.loads, case.texts)


def _outcome(verdict: str, conversation: Conversation, events: list[Event]) -> Outcome:
    return Outcome(
        verdict,
        messages=msgspec.to_builtins(conversation.messages),
        state=conversation.state,
        interrupts=msgspec.to_builtins(conversation.interrupts),
        runs=[_run(run) for run in conversation.runs],
        events=msgspec.to_builtins(events),
    )


def _run(run: ConversationRun) -> Raw:
    members: Raw = {"runId": run.run_id, "result": run.result}
    if run.error is not None:
        members["error"] = run.error.message
    if run.outcome == "success":
        called = [call_id for call_id, status in run.calls.items() if status == "called"]
        members["pending"] = called if run.reported_pending is None else run.reported_pending
    return {"outcome": run.outcome, **{name: value for name, value in members.items() if value is not None}}


class Peer:
    """The official client in one Node process, which reads streams while we read the same ones."""

    def __init__(self) -> None:
        command = [node_path(), str(FOLDER / "differential.mjs")]
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, encoding="utf-8", cwd=FOLDER
        )

    def read(self, cases: Iterable[Case]) -> Iterator[Outcome]:
        """Yield the client's outcome of each case, in order; ends the process, also when the caller stops early."""
        writer = threading.Thread(target=self._write, args=(cases,), daemon=True)
        writer.start()
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                yield Outcome(**json.loads(line))
            if self._process.wait():
                raise RuntimeError(f"differential.mjs ended with {self._process.returncode}")
        finally:
            self._process.kill()
            self._process.wait()
            writer.join()
            self._process.stdout.close()

    def _write(self, cases: Iterable[Case]) -> None:
        assert self._process.stdin is not None
        with suppress(BrokenPipeError), self._process.stdin as stdin:  # the reader says why the process has ended
            for case in cases:
                stdin.write(json.dumps({"body": case.body, "messages": case.messages, "state": case.state}) + "\n")


# Comparing


def same(a: Any, b: Any) -> bool:
    """Return whether two JSON values are the same, telling booleans from numbers."""
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b) and isinstance(a, str) == isinstance(b, str)


def differences(mine: Outcome, peer: Outcome) -> list[str]:
    """Return the aspects in which two outcomes differ."""
    if mine.verdict != peer.verdict:
        return [f"{mine.verdict}, not {peer.verdict}"]
    if mine.verdict == "rejected":
        return []
    return [aspect for aspect in ASPECTS if not same(getattr(mine, aspect), getattr(peer, aspect))]


@dataclass(frozen=True)
class Row:
    """A deliberate difference: its reason, its cause in a stream, and the differences that it excuses.

    ``is_cause`` looks for the cause in the raw stream. ``refuses`` says who alone may refuse such a stream ("we" or
    "they") and what the refusal has to mention; ``read`` returns an outcome of either side without the
    difference, and ``excuses`` names aspects that cannot be compared then.
    """

    name: str
    rules: str
    reason: str
    is_cause: Callable[[Case], bool]
    refuses: tuple[str, str] | None = None
    read: Callable[[Outcome], Outcome] | None = None
    excuses: tuple[str, ...] = ()


ROWS: tuple[Row, ...] = (
    Row(
        name="cut off",
        rules="TRN-7, AMB-5",
        reason="a stream without a terminal event is truncated to us; the client completes. Its content is compared",
        is_cause=is_cut_off,
        read=read_cut_off,
    ),
    Row(
        name="type of an encrypted value",
        rules="ENC-4, ENC-5",
        reason="encryptedValueType is of 1.1: we keep it, the client strips it",
        is_cause=anywhere(lambda raw: "encryptedValueType" in raw),
        read=without_value_type,
    ),
    Row(
        name="malformed type of an encrypted value",
        rules="ENC-4, PROC-2",
        reason="to us encryptedValueType is described, so what is no string in it is refused; the client strips it",
        is_cause=anywhere(lambda raw: not isinstance(raw.get("encryptedValueType", ""), str)),
        refuses=("we", "encryptedValueType"),
    ),
    Row(
        name="timestamp of a chunk",
        rules="CHK-1, PROC-9",
        reason="we put the timestamp of a chunk on the events it stands for; the client loses it",
        is_cause=lambda case: any("timestamp" in event for event in of(case, *CHUNKS)),
        read=without_timestamps,
    ),
    Row(
        name="defaults of an echoed input",
        rules="PROC-2",
        reason="the client fills in the tools and context that an echoed input lacks; we add nothing",
        is_cause=lambda case: any("input" in event for event in of(case, "RUN_STARTED")),
        read=with_input_defaults,
    ),
    Row(
        name="unknown word",
        rules="AMB-1, PROC-4",
        reason="an unknown role, subtype or status is stripped by its position; the client refuses it, an admitted gap",
        is_cause=anywhere(has_unknown_word),
        refuses=("they", "invalid_value"),
    ),
    Row(
        name="message or part without its kind",
        rules="AMB-3",
        reason="a message without role or a part without type is malformed (documents 000, 004); the client strips it",
        is_cause=anywhere(lacks_kind),
        refuses=("we", "is missing or not a string"),
    ),
    Row(
        name="message without an id",
        rules="legacy 17",
        reason="a message without an id is given one; the client refuses it",
        is_cause=anywhere(lacks_id),
        refuses=("they", '"id"'),
    ),
    Row(
        name="null parent or code of an older server",
        rules="document 003",
        reason="a null parentRunId or code is read as absent, beyond ERA-5; the client refuses it",
        is_cause=anywhere(has_older_null),
        refuses=("they", "received null"),
    ),
    Row(
        name="first reasoning chunk with an empty id",
        rules="CHK-3, document 003",
        reason="the id of the first chunk of a reasoning message is not empty; the client takes the empty string",
        is_cause=lambda case: any(event.get("messageId") == "" for event in of(case, "REASONING_MESSAGE_CHUNK")),
        refuses=("we", "must not be empty"),
    ),
    Row(
        name="patch operation without op",
        rules="SNAP-8",
        reason="an operation that does not say its op is malformed; the client drops it as it drops unknown ones",
        is_cause=any_operation(lambda operation: not isinstance(operation.get("op"), str)),
        refuses=("we", "must have an op"),
    ),
    Row(
        name="whole document moved or copied",
        rules="SNAP-3, SNAP-11",
        reason="fast-json-patch makes circular documents, or null of what is not there; we go by RFC 6902",
        is_cause=any_operation(moves_document),
        refuses=("they", "circular"),
        excuses=("messages", "state"),
    ),
    Row(
        name="member of a scalar",
        rules="SNAP-9",
        reason="in a bare number, string or boolean fast-json-patch lets some operations succeed without effect",
        is_cause=changes_scalar,
        excuses=("state",),
    ),
    Row(
        name="array index in another spelling",
        rules="SNAP-9",
        reason="RFC 6901 knows no index 01 and no empty one; fast-json-patch reads 1 and 0",
        is_cause=any_operation(lambda operation: any(map(is_odd_index, steps(operation)))),
        excuses=("messages", "state"),
    ),
    Row(
        name="move within an array",
        rules="SNAP-3",
        reason="a move is a remove and an add, which may no longer fit; fast-json-patch does not check the add",
        is_cause=any_operation(moves_within_array),
        excuses=("messages", "state"),
    ),
    Row(
        name="member that JavaScript objects inherit",
        rules="SNAP-9",
        reason="fast-json-patch finds toString in every object; to us it is there only if the document has it",
        is_cause=any_operation(lambda operation: not INHERITED.isdisjoint(steps(operation))),
        refuses=("they", "could not be cloned"),
        excuses=("messages", "state"),
    ),
    Row(
        name="activity that is no object",
        rules="ACT-8",
        reason="a patch that leaves no object for content is not applied; the client puts anything there",
        is_cause=loses_activity,
        excuses=("messages",),
    ),
    Row(
        name="member named __proto__",
        rules="PROC-5",
        reason="a member is a member to us, whatever its name; a copy made by JavaScript loses this one",
        is_cause=lambda case: '"__proto__"' in case.body,
        read=without_proto,
    ),
    Row(
        name="number beyond a double",
        rules="ENV-2",
        reason="we refuse numbers that no peer can hold; JavaScript reads Infinity, and writes it back as null",
        is_cause=lambda case: has_infinity(case.events),
        refuses=("we", "out of range"),
    ),
    Row(
        name="integer beyond 2^53",
        rules="ENV-2",
        reason="we keep integers exact where anything goes; JavaScript rounds them to a double",
        is_cause=lambda case: has_big_integer(case.events),
        read=as_doubles,
    ),
    Row(
        name="repeated tool result",
        rules="ENV-12, TOOL-5",
        reason="a result delivered again replaces the tool message of its id; the client adds a second one",
        is_cause=repeats_result,
        excuses=("messages",),
    ),
    Row(
        name="tool message that shares its id",
        rules="ENV-12",
        reason="where a tool message has the id of another message, we keep the two apart by their roles",
        is_cause=result_shares_id,
        excuses=("messages",),
    ),
    Row(
        name="new message of a call that shares its id",
        rules="ENV-12",
        reason="where the message made for a call has the id of another, we keep the two apart by their roles",
        is_cause=host_shares_id,
        excuses=("messages",),
    ),
    Row(
        name="repeated id in a list of messages",
        rules="ENV-12, MSGS-1",
        reason="of two messages with one id in a snapshot or input the later counts; the client may hold both",
        is_cause=repeats_id_in_list,
        excuses=("messages",),
    ),
    Row(
        name="text added to parts",
        rules="TXT-3, STR-4",
        reason="text added to a message of parts is added to its parts; the client discards the parts",
        is_cause=writes_onto_parts,
        excuses=("messages",),
    ),
    Row(
        name="minted ids",
        rules="ERA-2",
        reason="THINKING_* without ids is given some; which ones is nobody's business",
        is_cause=lambda case: bool(thinking(case)),
        read=with_counted_ids,
    ),
    Row(
        name="title of thinking",
        rules="ERA-2, legacy 4",
        reason="we keep the title of a THINKING_START in the metadata; the client drops it",
        is_cause=lambda case: any("title" in event for event in thinking(case)),
        read=without_kept,
    ),
    Row(
        name="thinking with ids",
        rules="legacy 4",
        reason="a THINKING_* event that names its message means that one; the client mints another id",
        is_cause=lambda case: any("messageId" in event for event in thinking(case)),
        refuses=("we", "REASONING_"),
        excuses=("messages", "events"),
    ),
    Row(
        name="binary part that is a reference",
        rules="ERA-3, legacy 11, 13",
        reason="a binary part with nothing but an id becomes a part with a file source; the client drops it",
        is_cause=any_part(lambda part: given(part) == ["id"]),
        excuses=("messages", "events"),
    ),
    Row(
        name="binary part with several sources",
        rules="ERA-3, legacy 12",
        reason="of several sources one counts; we keep an id in the part, others in metadata; the client drops them",
        is_cause=any_part(lambda part: len(given(part)) > 1),
        read=without_other_sources,
    ),
    Row(
        name="binary part with metadata",
        rules="ERA-3",
        reason="we keep the metadata of a binary part; the client drops it",
        is_cause=any_part(lambda part: given(part) != [] and part.get("metadata") is not None),
        excuses=("messages", "events"),
    ),
    Row(
        name="empty binary part",
        rules="ERA-3",
        reason="a binary part whose data is the empty string has empty data; the client drops it",
        is_cause=any_part(lambda part: "" in (part.get("data"), part.get("url")) and given(part) != []),
        excuses=("messages", "events"),
    ),
    Row(
        name="malformed binary part",
        rules="ERA-3, PROC-3",
        reason="a binary part that is malformed is dropped as unknown; the client upgrades and then refuses it",
        is_cause=any_part(lambda part: any(not isinstance(part[name], str) for name in given(part))),
        refuses=("they", "invalid_union"),
    ),
    Row(
        name="binary part in a tool result",
        rules="ERA-3, legacy 11",
        reason="we upgrade binary parts wherever parts may be; the client only in whole messages",
        is_cause=result_part(lambda part: part.get("type") == "binary"),
        excuses=("messages", "events"),
    ),
    Row(
        name="null metadata of a part in a tool result",
        rules="ERA-5",
        reason="ERA-5 names the part, wherever it is; the client looks for it only in whole messages",
        is_cause=result_part(lambda part: "metadata" in part and part["metadata"] is None),
        refuses=("they", "invalid_union"),
    ),
    Row(
        name="type of a part in another case",
        rules="legacy 36",
        reason="we read the part type Text as text; the client drops the part",
        is_cause=any_part(lambda part: part.get("type") == "Text"),
        excuses=("messages", "events"),
    ),
    Row(
        name="step with an id",
        rules="legacy 1",
        reason="a step that ends by its id is read by its name; the client misses the name",
        is_cause=lambda case: any("stepId" in event for event in of(case, "STEP_STARTED", "STEP_FINISHED")),
        refuses=("they", "stepName"),
        read=without_kept,
    ),
    Row(
        name="activity with an id",
        rules="legacy 2, 3",
        reason="activityId, state and delta are read as messageId, content and patch; the client misses those",
        is_cause=lambda case: any("activityId" in event for event in of(case, "ACTIVITY_SNAPSHOT", "ACTIVITY_DELTA")),
        refuses=("they", "messageId"),
    ),
    Row(
        name="encrypted content of a span",
        rules="legacy 6",
        reason="encryptedContent is read as a REASONING_ENCRYPTED_VALUE that follows; the client strips it",
        is_cause=lambda case: any("encryptedContent" in event for event in of(case, "REASONING_START")),
        excuses=("messages", "events"),
    ),
    Row(
        name="outcome as a string",
        rules="legacy 7",
        reason="the outcomes success and cancelled may be strings; the client refuses what is no object",
        is_cause=lambda case: any(isinstance(event.get("outcome"), str) for event in of(case, "RUN_FINISHED")),
        refuses=("they", "outcome"),
    ),
    Row(
        name="interrupt beside the outcome",
        rules="legacy 7",
        reason="an interrupt beside an outcome belongs to it; the client strips it and reads a success",
        is_cause=lambda case: any("interrupt" in event for event in of(case, "RUN_FINISHED")),
        refuses=("they", "outcome"),
        excuses=("interrupts", "runs", "events"),
    ),
    Row(
        name="interrupt with a payload",
        rules="legacy 8",
        reason="an interrupt without reason but with a payload is read by that; the client misses the reason",
        is_cause=lambda case: any("payload" in raw and "reason" not in raw for raw in interrupts(case)),
        refuses=("they", "reason"),
    ),
    Row(
        name="single answer",
        rules="legacy 9",
        reason="an object for resume is read as a list of one; the client refuses it",
        is_cause=lambda case: any(map(is_object, resumes(case))),
        refuses=("they", "resume"),
    ),
    Row(
        name="answer in other words",
        rules="legacy 9",
        reason="an answer may name its interrupt otherwise and lack a status; the client refuses it",
        is_cause=has_old_answer,
        refuses=("they", "resume"),
    ),
    Row(
        name="META",
        rules="legacy 23",
        reason="META is read as RAW; the client drops it",
        is_cause=lambda case: any(is_object(event) and event.get("type") == "META" for event in case.events),
        excuses=("events",),
    ),
)


def excused_by(case: Case, mine: Outcome, peer: Outcome) -> list[Row] | None:
    """Return the rows that excuse a difference, as few as suffice; None if they do not."""
    rows = [row for row in ROWS if row.is_cause(case)]
    if not _excuse(rows, mine, peer):
        return None
    for row in list(rows):
        fewer = [other for other in rows if other is not row]
        if _excuse(fewer, mine, peer):
            rows = fewer
    return rows


def _excuse(rows: list[Row], mine: Outcome, peer: Outcome) -> bool:
    if "rejected" in (mine.verdict, peer.verdict):
        who, error = ("we", mine.error) if mine.verdict == "rejected" else ("they", peer.error)
        return any(row.refuses is not None and row.refuses[0] == who and row.refuses[1] in error for row in rows)
    mine, peer = (Outcome(**json.loads(json.dumps(vars(side)))) for side in (mine, peer))  # readings may write
    excused: set[str] = set()
    for row in rows:
        excused.update(row.excuses)
        if row.read is not None:
            mine, peer = row.read(mine), row.read(peer)
    return excused.issuperset(differences(mine, peer))


# The report


@dataclass
class Report:
    """The result of a comparison."""

    seed: int
    streams: int = 0
    verdicts: Counter[str] = field(default_factory=Counter)
    excused: Counter[str] = field(default_factory=Counter)
    event_types: Counter[str] = field(default_factory=Counter)
    damage: Counter[str] = field(default_factory=Counter)
    excused_streams: int = 0
    uncompared: int = 0
    unexcused: list[tuple[Case, Outcome, Outcome]] = field(default_factory=list)

    def add(self, case: Case, mine: Outcome, peer: Outcome) -> None:
        """Count one stream."""
        self.streams += 1
        self.verdicts[peer.verdict] += 1
        self.event_types.update({event["type"] for event in known(case)})
        self.damage.update(set(case.damage) or {"none"})
        if differences(mine, peer):
            rows = excused_by(case, mine, peer)
            if rows is None:
                self.unexcused.append((case, mine, peer))
            else:
                self.excused.update(row.name for row in rows)
                self.excused_streams += 1
                self.uncompared += any(row.refuses or row.excuses for row in rows)

    def text(self) -> str:
        """Return the report as Markdown."""
        accepted, rejected = self.verdicts["accepted"], self.verdicts["rejected"]
        rows = [f"| {row.name} | {row.rules} | {row.reason} | {self.excused[row.name]} |" for row in ROWS]
        return "\n".join(
            [
                "# Our consumer and the official client on random streams",
                "",
                "Written by `python tests/interop/differential/differential.py "
                f"--count {self.streams} --seed {self.seed} --write`.",
                "",
                f"{self.streams} streams; `@ag-ui/client` 1.0.0 accepted {accepted} and rejected {rejected} of them.",
                f"{self.streams - self.excused_streams - len(self.unexcused)} gave the same verdict, messages, state, "
                f"interrupts, runs and delivered events as they are, {self.excused_streams} but for the deliberate "
                "differences below.",
                f"In {self.uncompared} of the latter such a difference left the verdict or some aspect uncompared; in "
                "the others all was equal once it was read away.",
                f"Differences not accounted for: {len(self.unexcused)}.",
                "",
                "## Deliberate differences, and how many streams each was needed to excuse",
                "",
                "| difference | rules | reason | streams |",
                "|---|---|---|---|",
                *rows,
                "",
                "## Streams with each kind of damage",
                "",
                *_table("damage", self.damage, ("none", *KINDS)),
                "",
                "## Streams with each event type",
                "",
                *_table("event", self.event_types, EVENT_TYPES),
                "",
            ]
        )


def _table(title: str, counts: Counter[str], names: Iterable[str]) -> list[str]:
    return [f"| {title} | streams |", "|---|---|", *(f"| {name} | {counts[name]} |" for name in names)]


def explain(case: Case, mine: Outcome, peer: Outcome) -> str:
    """Return a difference in a few lines, with the stream's seed."""
    lines = [f"seed {case.seed}, damage {case.damage}: {', '.join(differences(mine, peer))}"]
    lines += [f"  {who} refuse: {side.error}" for who, side in (("we", mine), ("they", peer)) if side.error]
    for aspect in ASPECTS if "rejected" not in (mine.verdict, peer.verdict) else ():
        for path, a, b in islice(_paths(getattr(mine, aspect), getattr(peer, aspect), aspect), 3):
            lines.append(f"  {path}: we {json.dumps(a)[:200]}, they {json.dumps(b)[:200]}")
    return "\n".join(lines)


def _paths(a: Any, b: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    """Yield where two values differ."""
    if same(a, b):
        return
    if isinstance(a, dict) and isinstance(b, dict):
        for name in a.keys() | b.keys():
            yield from _paths(a.get(name, "(absent)"), b.get(name, "(absent)"), f"{path}/{name}")
    elif isinstance(a, list) and isinstance(b, list) and len(a) == len(b):
        for i in range(len(a)):
            yield from _paths(a[i], b[i], f"{path}/{i}")
    else:
        yield path, a, b


def compare(count: int, seed: int) -> Report:
    """Compare the streams of ``count`` seeds from ``seed`` millions on."""
    report = Report(seed)
    # Made twice, once by the thread that feeds the peer: keeping 20,000 streams would take a gigabyte.
    first = seed * 1_000_000
    peers = Peer().read(random_case(first + i) for i in range(count))
    for i, peer in enumerate(peers):
        case = random_case(first + i)
        report.add(case, ours(case), peer)
    return report


def main() -> None:
    """Compare as many streams as the command line says, and print the report."""
    parser = argparse.ArgumentParser(description="Compare our consumer with the official client on random streams.")
    parser.add_argument("--count", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--write", action="store_true", help=f"write the report to {REPORT.name}")
    arguments = parser.parse_args()
    report = compare(arguments.count, arguments.seed)
    print(report.text())
    for difference in report.unexcused[:20]:
        print(explain(*difference))
    if arguments.write:
        REPORT.write_text(report.text(), encoding="utf-8")
    if report.unexcused:
        sys.exit(f"{len(report.unexcused)} differences are not accounted for")


if __name__ == "__main__":
    main()
