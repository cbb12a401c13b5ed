"""Layer: cli. ``aguila record``: one run of an agent, kept in a file with its input and its timing.

Above: ``stream_commands``. Below: ``calling``. Everything that comes is kept, also what breaks the protocol: it is
evidence. ``.sse`` and ``.pb`` are the bytes as they came; anything else is a recording (``aguila.testing.stored``).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from aguila.cli.calling import Answer, Caller, CannotRun, headers_of, make_input
from aguila.client.incoming import reader_for
from aguila.codec.notice import log_notice
from aguila.errors import ProtocolError, StreamTruncated
from aguila.testing.stored import format_of


class Recorded(msgspec.Struct, frozen=True, kw_only=True):
    """What was kept. ``problem`` says why it may not be everything, None if it is."""

    thread_id: str
    run_id: str
    events: int
    problem: str | None


def record(
    url: str,
    path: Path,
    *,
    message: str | None,
    input_file: Path | None,
    thread_id: str | None,
    headers: Sequence[str],
    protobuf: bool,
    patience: float,
    append: bool,
) -> Recorded:
    """Run an agent and keep what it answers. Raises ``CannotRun``."""
    wanted = make_input(message if message is not None or input_file is not None else "Hello", input_file, thread_id)
    is_raw = format_of(path) in ("sse", "protobuf")
    with Caller(url, headers=headers_of(headers), protobuf=protobuf, patience=patience) as caller:
        answer = caller.post(wanted)
        try:
            with path.open("ab" if append else "wb") as file:
                if not is_raw:
                    file.write(b'{"ms":0,"input":%b}\n' % msgspec.json.encode(wanted))
                events = 0
                problem: str | None = None
                try:
                    for ms, data in _pieces(answer) if is_raw else _events(answer):
                        file.write(data if is_raw else b'{"ms":%d,"event":%b}\n' % (int(ms), data))
                        events += 1
                except (ProtocolError, StreamTruncated) as error:
                    problem = str(error)
        except OSError as error:
            raise CannotRun(f"cannot write {path}: {error.strerror}") from None
        finally:
            answer.close()
    return Recorded(
        thread_id=str(wanted["threadId"]), run_id=str(wanted["runId"]), events=events, problem=problem or answer.broke
    )


def _pieces(answer: Answer) -> Iterator[tuple[float, bytes]]:
    yield from answer.pieces()


def _events(answer: Answer) -> Iterator[tuple[float, bytes]]:
    """The raw events, each on one line. Raises ``DecodeError`` for one that is no JSON: it cannot be a line of it."""
    reader = reader_for(answer.content_type, warn=log_notice)
    if reader is None:
        raise CannotRun(f"the answer is {answer.content_type or 'of no type'}, no stream of events")
    ms = 0.0
    for ms, data in answer.pieces():
        for frame in reader.feed(data):
            yield ms, on_one_line(frame.data)
    for frame in reader.close():
        yield ms, on_one_line(frame.data)


def on_one_line(event: bytes) -> bytes:
    """JSON without line ends, as it is otherwise. Raises ``StreamTruncated`` if it is no JSON."""
    try:
        msgspec.json.decode(event, type=msgspec.Raw)
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        shown = event[:60].decode("utf-8", "replace")
        raise StreamTruncated(f"an event that is no JSON ({error}) ends the recording: {shown!r}") from None
    return event.replace(b"\n", b" ").replace(b"\r", b" ")
