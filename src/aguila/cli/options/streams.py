"""The options of ``chat``, ``check``, ``record``, ``replay``, ``compact`` and ``convert``.

Each command is implemented in a module of its own, which is imported when the command runs.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import typer

from aguila.cli.options.help_texts import add_command
from aguila.testing.plurals import counted

_Format = Literal["sse", "jsonl", "json", "protobuf"]
_Url = Annotated[str, typer.Argument(metavar="URL", help="The agent's URL: runs are POSTed to it.")]
_Header = Annotated[
    list[str] | None, typer.Option("--header", "-H", metavar="'NAME: VALUE'", help="Request header. Repeatable.")
]
_Protobuf = Annotated[bool, typer.Option("--protobuf", metavar="", help="Request protobuf. SSE is read as well.")]
_Message = Annotated[
    str | None, typer.Option("--message", "-m", metavar="TEXT", help="Message to send. Default without --input: Hello.")
]
_Input = Annotated[
    Path | None,
    typer.Option("--input", metavar="FILE", help="JSON file with the RunAgentInput. Missing ids are generated."),
]
_Append = Annotated[bool, typer.Option("--append", metavar="", help="Add to an existing recording.")]
_Force = Annotated[bool, typer.Option("--force", metavar="", help="Replace an existing file.")]
_Patience = Annotated[
    float, typer.Option("--timeout", metavar="SECONDS", help="Longest wait for the next bytes.", min=0.1)
]


def register(commands: typer.Typer) -> None:
    """Add the commands to the application."""
    functions: tuple[Callable[..., Any], ...] = (chat, check, record, replay, compact, convert)
    for function in functions:
        add_command(commands, function)


def chat(
    url: _Url,
    message: Annotated[
        str | None, typer.Option("--message", "-m", metavar="TEXT", help="Send one message, print the answer, exit.")
    ] = None,
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="ID", help="Open this thread, or create it.")
    ] = None,
    attach: Annotated[
        str | None, typer.Option("--attach", metavar="ID", help="Join the run in progress on this thread.")
    ] = None,
    header: _Header = None,
    protobuf: _Protobuf = False,
    record: Annotated[
        Path | None, typer.Option("--record", metavar="FILE", help="Record inputs and events to this .jsonl file.")
    ] = None,
    append: _Append = False,
    force: _Force = False,
    color: Annotated[bool, typer.Option("--color/--no-color", metavar="", help="Use colours in a terminal.")] = True,
) -> None:
    """Chat with an agent.

    In a pipe, standard input is the message, and standard output receives the text of the answer.

    Exit status: 0 answered; 1 the run failed or was cut off; 2 the agent was not reached, or refused the request;
    3 the agent asks a question, and there is no terminal to answer it.
    """
    from aguila.cli import chat as chatting
    from aguila.cli.http_caller import CannotRun

    if attach is not None and thread is not None:
        raise typer.BadParameter("--attach and --thread both name the thread; give one of them")
    try:
        status = chatting.chat(
            url,
            message=message,
            thread_id=thread,
            attach=attach,
            headers=header or (),
            protobuf=protobuf,
            recording=record,
            append=append,
            force=force,
            color=color,
        )
    except CannotRun as error:
        raise _failed("chat", error) from None
    raise typer.Exit(status)


def check(
    target: Annotated[
        str, typer.Argument(metavar="URL|FILE|-", help="An agent's URL, a file, or - for standard input.")
    ],
    message: _Message = None,
    input: _Input = None,  # noqa: A002 - the name of the option
    header: _Header = None,
    protobuf: _Protobuf = False,
    format: Annotated[  # noqa: A002
        Literal["text", "json", "junit"], typer.Option("--format", help="Format of the report.")
    ] = "text",
    source: Annotated[_Format | None, typer.Option("--from", help="Format of the file, if detection fails.")] = None,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="RULE", help="Do not report this rule, such as VER-2. Repeatable."),
    ] = None,
    timeout: _Patience = 60.0,
) -> None:
    """Check an agent or a recorded stream, and report every protocol violation with its rule.

    A finding is an error (consumers must refuse the stream), a warning (a broken rule that consumers tolerate), or a
    note (no rule is broken).

    Exit status: 0 no violations; 1 violations; 2 the agent could not be run, or the file could not be read.
    """
    from aguila.cli import check as checking
    from aguila.cli.output.report import report

    try:
        if checking.is_url(target):
            found = checking.check_url(
                target,
                message=message,
                input_file=input,
                headers=header or (),
                protobuf=protobuf,
                timeout=timeout,
            )
        else:
            found = checking.check_file(target, format_=source, input_file=input)
    except checking.CannotRun as error:
        raise _failed("check", error) from None
    found = checking.without(found, ignore or ())
    typer.echo(report(found, format))
    raise typer.Exit(0 if found.is_clean else 1)


def record(
    url: _Url,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="Output: .jsonl (with input and timing), .sse, .json or .pb.")
    ],
    message: _Message = None,
    input: _Input = None,  # noqa: A002
    thread: Annotated[
        str | None, typer.Option("--thread", metavar="ID", help="Thread to run on. Default: a new one.")
    ] = None,
    append: _Append = False,
    force: _Force = False,
    header: _Header = None,
    protobuf: _Protobuf = False,
    timeout: _Patience = 60.0,
) -> None:
    """Run an agent once and record what it sends, valid or not.

    Exit status: 0 complete; 1 the stream broke off; 2 the agent could not be run, or the file could not be written.
    """
    from aguila.cli import record as recording
    from aguila.cli.http_caller import CannotRun

    try:
        kept = recording.record(
            url,
            file,
            message=message,
            input_file=input,
            thread_id=thread,
            headers=header or (),
            protobuf=protobuf,
            timeout=timeout,
            append=append,
            force=force,
        )
    except CannotRun as error:
        raise _failed("record", error) from None
    what = counted(kept.count, kept.unit)
    typer.echo(f"{what} of run {kept.run_id} on thread {kept.thread_id} in {file}", err=True)
    if kept.problem is not None:
        typer.echo(f"aguila record: {kept.problem}", err=True)
        raise typer.Exit(1)


def replay(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A recording, or a stream in any format.")],
    host: Annotated[str, typer.Option(help="Address to bind.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option(metavar="PORT", help="Port to bind; 0 picks a free one.", min=0, max=65535)
    ] = 8000,
    fast: Annotated[bool, typer.Option("--fast", metavar="", help="Send everything at once.")] = False,
    speed: Annotated[
        float, typer.Option(metavar="FACTOR", help="Multiply the recorded speed by this factor.", min=0.001)
    ] = 1.0,
    verbatim: Annotated[
        bool, typer.Option("--verbatim", metavar="", help="Keep the recorded thread and run ids.")
    ] = False,
    source: Annotated[_Format | None, typer.Option("--from", help="Format of the file, if detection fails.")] = None,
) -> None:
    """Serve a recording as an agent.

    Each request on a thread gets the next recorded run; after the last one, HTTP 404. Events are sent as recorded,
    with the thread and run ids of the request.

    Exit status: 2 if the file cannot be read or the port cannot be bound.
    """
    from aguila.cli import replay as replaying
    from aguila.cli.http_caller import CannotRun, read_stream
    from aguila.cli.serve import CannotServe
    from aguila.codec.formats import detect_format
    from aguila.testing.recordings import read_streams

    try:
        data = read_stream(file)
        found = source or detect_format(data, file.name)
        runs = replaying.runs_of(read_streams(data, found), found)
        if not any(run.events for run in runs):
            raise CannotRun(f"{file} has no events")
        app = replaying.Replay(runs, speed=0.0 if fast else speed, verbatim=verbatim)
        replaying.serve(app, host=host, port=port, what=f"{counted(len(runs), 'run')} of {file}")
    except (CannotRun, CannotServe) as error:
        raise _failed("replay", error) from None


def compact(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A stream in any format, or - for standard input.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Output file, or - for standard output. Default: -.")
    ] = None,
    to: Annotated[
        _Format | None, typer.Option("--to", help="Output format. Default: by file name, else unchanged.")
    ] = None,
    source: Annotated[_Format | None, typer.Option("--from", help="Format of the file, if detection fails.")] = None,
    force: _Force = False,
) -> None:
    """Compact a stream: one start, content and end event for each item, with the same meaning.

    Chunk events are expanded, so that a message of one or two chunks takes up to two more events.

    Exit status: 0 done; 1 the stream is invalid (aguila check reports why); 2 a file could not be read or written.
    """
    from aguila.cli import convert as converting

    data, found, target = _source("compact", file, out, source, to, force=force, is_default_same=True)
    try:
        result, before, after = converting.compacted(data, found, target, warn=_warn)
    except converting.CannotConvert as error:
        raise _failed("compact", error, 1) from None
    _write("compact", out, result)
    more = "; chunks were expanded" if after > before else ""
    typer.echo(f"{counted(before, 'event')}, now {after}{more}", err=True)


def convert(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A stream in any format, or - for standard input.")],
    out: Annotated[
        Path | None, typer.Argument(metavar="OUT", help="Output file, or - for standard output. Default: -.")
    ] = None,
    to: Annotated[_Format | None, typer.Option("--to", help="Output format. Default: by file name.")] = None,
    source: Annotated[_Format | None, typer.Option("--from", help="Format of the file, if detection fails.")] = None,
    force: _Force = False,
) -> None:
    """Convert a stream between .sse, .jsonl, .json (an array) and .pb (protobuf frames).

    Exit status: 0 done; 1 the stream cannot be converted; 2 a file could not be read or written.
    """
    from aguila.cli import convert as converting

    data, found, target = _source("convert", file, out, source, to, force=force, is_default_same=False)
    try:
        result = converting.convert(data, found, target, warn=_warn)
    except converting.CannotConvert as error:
        raise _failed("convert", error, 1) from None
    _write("convert", out, result)


def _source(
    command: str,
    file: Path,
    out: Path | None,
    source: _Format | None,
    to: _Format | None,
    *,
    force: bool,
    is_default_same: bool,
) -> tuple[bytes, _Format, _Format]:
    from aguila.cli.http_caller import CannotRun, read_stream
    from aguila.codec.formats import detect_format, format_from_name

    if _is_file(out) and out.is_file() and not force:
        raise _failed(command, f"{out} exists; --force replaces it")
    try:
        data = read_stream(file)
    except CannotRun as error:
        raise _failed(command, error) from None
    found = source or detect_format(data, file.name)
    target = to or (None if out is None else format_from_name(out)) or (found if is_default_same else None)
    if target is None:
        raise _failed(
            command, "the output format is unknown; give --to, or a file name that ends in .sse, .jsonl, .json or .pb"
        )
    return data, found, target


def _is_file(out: Path | None) -> TypeGuard[Path]:
    """Return whether the result goes to a file rather than to standard output."""
    return out is not None and str(out) != "-"


def _write(command: str, out: Path | None, data: bytes) -> None:
    if not _is_file(out):
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()
        return
    try:
        out.write_bytes(data)
    except OSError as error:
        raise _failed(command, f"cannot write {out}: {error.strerror}") from None


def _warn(notice: Any) -> None:
    typer.echo(f"warning: {notice}", err=True)


def _failed(command: str, error: object, status: int = 2) -> typer.Exit:
    typer.echo(f"aguila {command}: {error}", err=True)
    return typer.Exit(status)
