"""``aguila convert``: a stream of every event type through every pair of forms."""

from __future__ import annotations

import json
from itertools import permutations
from pathlib import Path

import pytest
from processes.forked import aguila
from streams.every_event import every_event
from streams.protobuf_losses import after_protobuf

from aguila.cli.convert import CannotConvert, convert, written
from aguila.codec import decode_event, encode_event
from aguila.codec.formats import Format, detect_format, format_from_name
from aguila.codec.notices import Notice
from aguila.errors import AguilaError
from aguila.testing.recordings import read_streams

SUFFIXES: dict[Format, str] = {"sse": ".sse", "jsonl": ".jsonl", "json": ".json", "protobuf": ".pb"}
FORMATS = tuple(SUFFIXES)


def unexpected(notice: Notice) -> None:
    raise AssertionError(str(notice))


def tolerated(notice: Notice) -> None:
    """Accept notices about integers that protobuf cannot represent."""
    assert notice.rule == "PB-12", notice


def events_in(data: bytes, form: Format) -> list[object]:
    return [decode_event(event.data, warn=unexpected) for event in read_streams(data, form)[0].events]


@pytest.mark.parametrize(("source", "target"), list(permutations(FORMATS, 2)))
def test_a_stream_of_every_event_type_survives_there_and_back(source: Format, target: Format) -> None:
    original = written(every_event(), source, tolerated)
    there = convert(original, source, target, warn=tolerated)
    assert detect_format(there) == target
    back = convert(there, target, source, warn=tolerated)
    expected = list(every_event())
    if "protobuf" in (source, target):
        expected = [after_protobuf(event) for event in expected]
    else:
        assert back == original
    assert events_in(there, target) == expected
    assert events_in(back, source) == expected


@pytest.mark.parametrize("form", FORMATS)
def test_the_form_is_recognised_by_the_content_and_by_the_name(form: Format) -> None:
    assert detect_format(written(every_event(), form, tolerated)) == form
    assert format_from_name(f"x{SUFFIXES[form]}") == form
    assert detect_format(b"", f"x{SUFFIXES[form]}") == form


def test_an_empty_stream_is_one_in_every_form() -> None:
    for source, target in permutations(FORMATS, 2):
        empty = written([], source, unexpected)
        assert convert(empty, source, target, warn=unexpected) == written([], target, unexpected)


def test_between_json_forms_unknown_material_is_handed_on() -> None:
    line = b'{"type": "WINGS", "span": 2.30, "n": 12345678901234567890}\n'
    sse = convert(line, "jsonl", "sse", warn=unexpected)
    assert sse == b"data: " + line.strip() + b"\n\n"
    assert convert(sse, "sse", "jsonl", warn=unexpected) == line


def test_to_protobuf_unknown_material_is_dropped_with_a_notice() -> None:
    notices: list[Notice] = []
    assert convert(b'{"type": "WINGS"}\n', "jsonl", "protobuf", warn=notices.append) == b""
    assert [notice.rule for notice in notices] == ["PROC-3"]


def test_a_recording_becomes_its_events() -> None:
    event = encode_event(every_event()[0])
    recording = b'{"ms":0,"input":{}}\n{"ms":1,"event":%b}\n{"ms":0,"input":{}}\n{"ms":1,"event":%b}\n' % (event, event)
    assert convert(recording, "jsonl", "jsonl", warn=unexpected) == event + b"\n" + event + b"\n"


@pytest.mark.parametrize(
    ("data", "source", "target", "message"),
    [
        (b"{nonsense\n", "jsonl", "sse", "event 0: not an event"),
        (b"[1]", "json", "sse", "event 0: not an event"),
        (b"[{}", "json", "sse", "not a JSON array"),
        (b'{"name": "aguila"}\n', "jsonl", "sse", "event 0: not an event"),
        (b"# Shopping\n\nleeks\n", "sse", "jsonl", "not a stream of events: read as sse, it has no event"),
        (b"data: [DONE]\n\n", "sse", "jsonl", "event 0: not an event"),
        (b'{"type":"STATE_DELTA","delta":5}\n', "jsonl", "protobuf", "event 0: .* aguila check reports"),
        (b"\0\0\0\x09abc", "protobuf", "sse", "ended in the middle of a frame"),
        (b'{"type":"CUSTOM","name":"\\ud83d","value":1}\n', "jsonl", "protobuf", "cannot be written as protobuf"),
    ],
)
def test_what_cannot_be_converted_is_said_so(data: bytes, source: Format, target: Format, message: str) -> None:
    with pytest.raises(CannotConvert, match=message):
        convert(data, source, target, warn=lambda notice: None)


# The command


def test_the_command_goes_by_the_names_of_files(tmp_path: Path) -> None:
    lines = written(every_event(), "jsonl", unexpected)
    (tmp_path / "a.jsonl").write_bytes(lines)
    for source, target in (("a.jsonl", "b.sse"), ("b.sse", "c.json"), ("c.json", "d.jsonl")):
        done = aguila("convert", source, target, folder=tmp_path)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert (tmp_path / "d.jsonl").read_bytes() == lines
    assert len(json.loads((tmp_path / "c.json").read_bytes())) == len(every_event())
    assert aguila("check", "b.sse", folder=tmp_path).returncode in (0, 1)  # it is read; duties are another matter


def test_the_command_writes_to_the_standard_output_and_reads_the_standard_input(tmp_path: Path) -> None:
    lines = written(every_event(), "jsonl", unexpected)
    done = aguila("convert", "-", "--to", "sse", folder=tmp_path, stdin=lines)
    assert done.returncode == 0
    assert done.stdout == written(every_event(), "sse", unexpected)


def test_the_exit_status_tells_a_bad_stream_from_a_bad_call(tmp_path: Path) -> None:
    (tmp_path / "bad.jsonl").write_bytes(b"{nonsense\n")
    (tmp_path / "good.jsonl").write_bytes(b"")
    assert aguila("convert", "bad.jsonl", "x.sse", folder=tmp_path).returncode == 1
    assert not (tmp_path / "x.sse").exists()
    for arguments in (("none.jsonl", "x.sse"), ("good.jsonl", "x.thing"), ("good.jsonl", "no/x.sse"), ("good.jsonl",)):
        done = aguila("convert", *arguments, folder=tmp_path)
        assert done.returncode == 2, arguments
        assert done.stderr.startswith(b"aguila convert: ")


@pytest.mark.parametrize("command", ["convert", "compact"])
def test_a_file_that_is_not_a_stream_is_refused(tmp_path: Path, command: str) -> None:
    (tmp_path / "notes.md").write_bytes(b"# Shopping\n\nleeks\n")
    done = aguila(command, "notes.md", "out.sse", folder=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith(f"aguila {command}: not a stream of events".encode())
    assert not (tmp_path / "out.sse").exists()


@pytest.mark.parametrize("command", ["convert", "compact"])
def test_an_existing_file_is_replaced_only_with_force(tmp_path: Path, command: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(written(every_event(), "jsonl", unexpected))
    (tmp_path / "b.sse").write_bytes(b"mine")
    done = aguila(command, "a.jsonl", "b.sse", folder=tmp_path)
    assert (done.returncode, (tmp_path / "b.sse").read_bytes()) == (2, b"mine")
    assert b"b.sse exists; --force replaces it" in done.stderr
    assert aguila(command, "a.jsonl", "b.sse", "--force", folder=tmp_path).returncode == 0
    assert detect_format((tmp_path / "b.sse").read_bytes()) == "sse"


@pytest.mark.parametrize("command", ["convert", "compact"])
def test_a_dash_is_the_standard_output(tmp_path: Path, command: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(written(every_event(), "jsonl", unexpected))
    done = aguila(command, "a.jsonl", "-", "--to", "sse", folder=tmp_path)
    assert done.returncode == 0
    assert detect_format(done.stdout) == "sse"
    assert [path.name for path in tmp_path.iterdir()] == ["a.jsonl"]


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le"])
@pytest.mark.parametrize("command", [("convert", "--to", "sse"), ("compact",), ("check",)], ids=lambda words: words[0])
def test_utf_16_is_named(tmp_path: Path, command: tuple[str, ...], encoding: str) -> None:
    (tmp_path / "a.jsonl").write_bytes(written(every_event(), "jsonl", unexpected).decode().encode(encoding))
    done = aguila(*command, "a.jsonl", folder=tmp_path)
    assert (done.returncode, done.stdout) == (2, b"")
    assert (
        done.stderr
        == f"aguila {command[0]}: a.jsonl is UTF-16; streams have to be UTF-8, so convert the file first\n".encode()
    )


def test_errors_are_of_the_one_tree() -> None:
    assert issubclass(CannotConvert, AguilaError)
