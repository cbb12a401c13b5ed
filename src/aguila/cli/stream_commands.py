"""Layer: cli. The options of the commands that talk to an agent or read streams: chat, check, record, replay, ...

Above: ``commands`` registers them. Below: one module per command, imported when it is used.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeGuard

import typer

_Format = Literal["sse", "jsonl", "json", "protobuf"]
_Url = Annotated[str, typer.Argument(help="The agent's address, where runs are POSTed.")]
_Header = Annotated[list[str] | None, typer.Option("--header", "-H", help="A header of the request: 'Name: value'.")]
_Protobuf = Annotated[bool, typer.Option("--protobuf", help="Ask for protobuf; either is read.")]
_Message = Annotated[
    str | None, typer.Option("--message", "-m", help="What to say; Hello, if there is neither it nor an input.")
]
_Input = Annotated[
    Path | None, typer.Option("--input", help="A file with the RunAgentInput to send; ids it lacks are made up.")
]
_Append = Annotated[bool, typer.Option("--append", help="Add to the recording, if there is a file already.")]
_Force = Annotated[bool, typer.Option("--force", help="Replace the file, if there is one already.")]
_Patience = Annotated[float, typer.Option("--timeout", help="Seconds to wait for the next bytes.", min=0.1)]


def register(commands: typer.Typer) -> None:
    """Add these commands to the others."""
    listed: tuple[Callable[..., Any], ...] = (chat, check, record, replay, compact, convert)
    for command in listed:
        commands.command()(command)


def chat(
    url: _Url,
    message: Annotated[str | None, typer.Option("--message", "-m", help="Say this, show the answer, leave.")] = None,
    thread: Annotated[str | None, typer.Option("--thread", help="Go on with this thread, or begin it.")] = None,
    attach: Annotated[str | None, typer.Option("--attach", help="Join the run that is on in this thread.")] = None,
    header: _Header = None,
    protobuf: _Protobuf = False,
    record: Annotated[
        Path | None, typer.Option("--record", help="Keep what goes over the wire in this file, as JSON lines.")
    ] = None,
    append: _Append = False,
    force: _Force = False,
    color: Annotated[bool, typer.Option("--color/--no-color", help="Colours, where there is a terminal.")] = True,
) -> None:
    """Talk to an agent.

    In a pipe the standard input is the message, and only the answer's text goes to the standard output. Exit status: 0
    answered, 1 the run failed or was cut off, 2 not reached or refused, 3 the agent asks something and nobody is there
    to answer.
    """
    from aguila.cli import chat as chatting
    from aguila.cli.calling import CannotRun

    if attach is not None and thread is not None:
        raise typer.BadParameter("--attach names the thread, too: give one of them")
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
    target: Annotated[str, typer.Argument(help="An agent's address, a file with a stream, or - for standard input.")],
    message: _Message = None,
    input: _Input = None,  # noqa: A002 - the name of the option
    header: _Header = None,
    protobuf: _Protobuf = False,
    format: Annotated[  # noqa: A002
        Literal["text", "json", "junit"], typer.Option("--format", help="What the report looks like.")
    ] = "text",
    source: Annotated[
        _Format | None, typer.Option("--from", help="The file's format, if it is not recognised.")
    ] = None,
    ignore: Annotated[list[str] | None, typer.Option("--ignore", help="A rule not to report, such as VER-2.")] = None,
    timeout: _Patience = 60.0,
) -> None:
    """Run an agent, or read a stream, and report every violation with its rule.

    Errors are what a consumer must refuse, warnings what consumers tolerate and a producer still owes, notes are
    neither. Exit status: 0 no violations, 1 violations, 2 it could not be run or read.
    """
    from aguila.cli import check as checking
    from aguila.cli.report import report

    try:
        if checking.is_url(target):
            found = checking.check_url(
                target,
                message=message,
                input_file=input,
                headers=header or (),
                protobuf=protobuf,
                patience=timeout,
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
    file: Annotated[Path, typer.Argument(help="Where to: .jsonl with input and timing, .sse, .json or .pb.")],
    message: _Message = None,
    input: _Input = None,  # noqa: A002
    thread: Annotated[str | None, typer.Option("--thread", help="The thread to run on; a new one otherwise.")] = None,
    append: _Append = False,
    force: _Force = False,
    header: _Header = None,
    protobuf: _Protobuf = False,
    timeout: _Patience = 60.0,
) -> None:
    """Run an agent and keep what it sends, right or wrong.

    Exit status: 0 all of it was kept, 1 the stream broke off, 2 it could not be run.
    """
    from aguila.cli import record as recording
    from aguila.cli.calling import CannotRun

    try:
        kept = recording.record(
            url,
            file,
            message=message,
            input_file=input,
            thread_id=thread,
            headers=header or (),
            protobuf=protobuf,
            patience=timeout,
            append=append,
            force=force,
        )
    except CannotRun as error:
        raise _failed("record", error) from None
    typer.echo(f"{kept.count} {kept.what} of run {kept.run_id} on thread {kept.thread_id} in {file}", err=True)
    if kept.problem is not None:
        typer.echo(f"aguila record: {kept.problem}", err=True)
        raise typer.Exit(1)


def replay(
    file: Annotated[Path, typer.Argument(help="A recording, or a stream in any form.")],
    host: Annotated[str, typer.Option(help="Where to listen.")] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="0 takes any that is free.", min=0, max=65535)] = 8000,
    fast: Annotated[bool, typer.Option("--fast", help="At once, rather than at the speed of the recording.")] = False,
    speed: Annotated[float, typer.Option(help="How much faster than it was.", min=0.001)] = 1.0,
    verbatim: Annotated[bool, typer.Option("--verbatim", help="Keep the recorded thread and run ids.")] = False,
    source: Annotated[
        _Format | None, typer.Option("--from", help="The file's format, if it is not recognised.")
    ] = None,
) -> None:
    """Serve a recording as an agent.

    Every thread gets its runs in order, one for each request; then HTTP 404. Events are sent as they were, with the
    request's thread and run ids.
    """
    from aguila.cli import replay as replaying
    from aguila.cli.calling import CannotRun, read_stream
    from aguila.cli.serve import CannotServe
    from aguila.codec.formats import detect
    from aguila.testing.stored import read_streams

    try:
        data = read_stream(file)
        found = source or detect(data, file.name)
        runs = replaying.runs_of(read_streams(data, found), found)
        if not any(run.events for run in runs):
            raise CannotRun(f"there are no events in {file}")
        app = replaying.Replay(runs, speed=0.0 if fast else speed, verbatim=verbatim)
        replaying.serve(app, host=host, port=port, what=f"{len(runs)} runs of {file}")
    except (CannotRun, CannotServe) as error:
        raise _failed("replay", error) from None


def compact(
    file: Annotated[Path, typer.Argument(help="A stream in any form.")],
    out: Annotated[Path | None, typer.Argument(help="Where to; standard output otherwise, and for -.")] = None,
    to: Annotated[_Format | None, typer.Option("--to", help="The form; by name, or as it was.")] = None,
    source: Annotated[
        _Format | None, typer.Option("--from", help="The file's format, if it is not recognised.")
    ] = None,
    force: _Force = False,
) -> None:
    """Write the shortest stream that means the same: one start, content and end for each item.

    Chunks are written out, so a message that came in one or two chunks takes up to two events more.
    Exit status: 0 done, 1 the stream is broken (aguila check says how), 2 it could not be read or written.
    """
    from aguila.cli import convert as converting

    data, found, target = _source("compact", file, out, source, to, force=force, is_default_same=True)
    try:
        result, before, after = converting.compacted(data, found, target, warn=_warn)
    except converting.CannotConvert as error:
        raise _failed("compact", error, 1) from None
    _write("compact", out, result)
    more = "; chunks are written out" if after > before else ""
    typer.echo(f"{before} events, now {after}{more}", err=True)


def convert(
    file: Annotated[Path, typer.Argument(help="A stream in any form.")],
    out: Annotated[Path | None, typer.Argument(help="Where to; standard output otherwise, and for -.")] = None,
    to: Annotated[_Format | None, typer.Option("--to", help="The form, if the name does not say it.")] = None,
    source: Annotated[
        _Format | None, typer.Option("--from", help="The file's format, if it is not recognised.")
    ] = None,
    force: _Force = False,
) -> None:
    """Write a stream in another form: .sse, .jsonl, .json (an array) or .pb (protobuf frames).

    Exit status: 0 done, 1 the stream cannot be converted, 2 it could not be read or written.
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
    from aguila.cli.calling import CannotRun, read_stream
    from aguila.codec.formats import detect, format_of

    if _is_file(out) and out.is_file() and not force:
        raise _failed(command, f"there is a file {out} already; --force replaces it")
    try:
        data = read_stream(file)
    except CannotRun as error:
        raise _failed(command, error) from None
    found = source or detect(data, file.name)
    target = to or (None if out is None else format_of(out)) or (found if is_default_same else None)
    if target is None:
        raise _failed(command, "say the form with --to, or by a name that ends in .sse, .jsonl, .json or .pb")
    return data, found, target


def _is_file(out: Path | None) -> TypeGuard[Path]:
    """Whether the result goes into a file, rather than to the standard output."""
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
