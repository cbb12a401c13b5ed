"""``aguila compact``: shorter, with the same meaning, in any form."""

from __future__ import annotations

import json
from pathlib import Path
from typing import get_args

import pytest
from builders import run_finished_json, run_started_json
from processes.forked import aguila
from streams.every_event import every_event

from aguila.cli.convert import CannotConvert, compacted, convert, written
from aguila.codec import decode_event
from aguila.codec.formats import Format, detect_format
from aguila.codec.notices import Notice
from aguila.stream import compact, reduce
from aguila.stream.chunks import expand_chunks
from aguila.testing.recordings import read_streams

FORMATS: tuple[Format, ...] = get_args(Format)


def ignored(notice: Notice) -> None:
    """Ignore patches that do not apply: they are in the stream on purpose."""


def meaning(data: bytes, form: Format) -> object:
    events = [decode_event(event.data, warn=ignored) for event in read_streams(data, form)[0].events]
    conversation = reduce(expand_chunks(event for event in events if event is not None), warn=ignored)
    return conversation.messages, conversation.state


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("source", FORMATS)
def test_a_stream_of_every_event_type_means_the_same_when_it_is_compacted(source: Format, target: Format) -> None:
    original = written(every_event(), source, ignored)
    shorter, before, after = compacted(original, source, target, warn=ignored)
    assert before == len(every_event())
    assert after < before
    assert detect_format(shorter) == target
    assert meaning(shorter, target) == meaning(original, source)
    again, _, still = compacted(shorter, target, target, warn=ignored)
    assert (again, still) == (shorter, after)


def test_it_is_what_the_library_does() -> None:
    lines = written(every_event(), "jsonl", ignored)
    assert compacted(lines, "jsonl", "jsonl", warn=ignored)[0] == written(
        compact(every_event(), warn=ignored), "jsonl", ignored
    )


def test_the_state_of_a_recorded_input_lets_patches_be_joined() -> None:
    patches = [{"op": "replace", "path": "/n", "value": value} for value in (1, 2, 3)]
    events = [
        run_started_json(),
        *({"type": "STATE_DELTA", "delta": [patch]} for patch in patches),
        run_finished_json(),
    ]
    given = {"threadId": "t", "runId": "r", "messages": [], "state": {"n": 0}}
    recording = "\n".join(json.dumps(line) for line in ({"input": given}, *({"event": one} for one in events))).encode()
    assert compacted(recording, "jsonl", "jsonl", warn=ignored)[1:] == (5, 3)
    plain = convert(recording, "jsonl", "jsonl", warn=ignored)
    assert compacted(plain, "jsonl", "jsonl", warn=ignored)[1:] == (5, 5)


def test_a_chunk_that_belongs_to_nothing_cannot_be_compacted() -> None:
    lines = b'{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n{"type":"TEXT_MESSAGE_CHUNK","delta":"x"}\n'
    with pytest.raises(CannotConvert, match=r"\[CHK-3\]; aguila check reports"):
        compacted(lines, "jsonl", "jsonl", warn=ignored)


def test_chunks_are_written_out_also_where_that_is_longer(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_text(
        '{"type":"RUN_STARTED","threadId":"t","runId":"r"}\n'
        '{"type":"TEXT_MESSAGE_CHUNK","messageId":"m","delta":"x"}\n'
        '{"type":"RUN_FINISHED","threadId":"t","runId":"r"}\n'
    )
    done = aguila("compact", "a.jsonl", folder=tmp_path)
    assert done.stderr == b"3 events, now 5; chunks were expanded\n"


def test_the_command_says_how_much_shorter_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.jsonl").write_bytes(written(every_event(), "jsonl", ignored))
    done = aguila("compact", "a.jsonl", folder=tmp_path)
    assert done.returncode == 0
    after = len(done.stdout.splitlines())
    assert done.stderr.decode().splitlines()[-1] == f"{len(every_event())} events, now {after}"
    done = aguila("compact", "a.jsonl", "b.sse", folder=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"")
    assert detect_format((tmp_path / "b.sse").read_bytes()) == "sse"
    assert aguila("compact", "none.jsonl", folder=tmp_path).returncode == 2
    (tmp_path / "bad.jsonl").write_bytes(b"[1\n")
    assert aguila("compact", "bad.jsonl", folder=tmp_path).returncode == 1
