"""``aguila chat``: in a real terminal and in a pipe, against the demo in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from builders import RUN_FINISHED, run_finished_json, run_started_json, text_message_json
from processes.commands import Command, aguila_serve
from processes.forked import aguila
from processes.terminal import Terminal
from rich.console import Console
from scripted_server import Answer, Asked, ScriptedServer, frames
from streams.every_event import every_event
from waiting import wait_until

from aguila.cli.chat import ask_for
from aguila.cli.output.transcript import Transcript, escape_controls, short
from aguila.client import GIVE_UP
from aguila.protocol import (
    StateDeltaEvent,
    StateSnapshotEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    ToolCallEndEvent,
    ToolCallStartEvent,
)
from aguila.testing.recordings import read_streams

DIM = "\x1b[2m"


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Command]:
    with aguila_serve(tmp_path_factory.mktemp("demo")) as server:
        yield server


def terminal(demo: Command, folder: Path, *arguments: str, **environment: str) -> Terminal:
    return Terminal(["-m", "aguila", "chat", demo.url, *arguments], folder, **environment)


# In a terminal


def test_in_a_terminal_a_person_talks_asks_for_things_and_leaves(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path) as screen:
        screen.expect("/help lists the commands")
        screen.expect("> ")
        screen.type("show me text")
        screen.expect("everybody who watches sees it grow.")
        screen.expect("> ")
        screen.type("show me the state")
        screen.expect('state {"recipe":{"title":"Soup","ingredients":[]}}')
        screen.expect("state /recipe/ingredients/2 = thyme")
        screen.expect("Now with thyme.")
        screen.expect("> ")
        screen.type("/state")
        screen.expect('{"recipe":{"title":"Soup","ingredients":["leek","potato","thyme"]}}')
        screen.expect("> ")
        screen.type("/quit")
        assert screen.ended() == 0


def test_reasoning_is_dim_italic_and_the_answer_is_not(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path, "-m", "show reasoning") as screen:
        assert screen.ended() == 0
        assert "\x1b[2;3mSix\x1b[0m" in screen.screen
        assert screen.plain.splitlines() == ["Six times seven: six sevens are forty-two.", "The answer is 42."]
        assert screen.screen.endswith(" 42.\r\n")


def test_without_colours_there_are_none(demo: Command, tmp_path: Path) -> None:
    for arguments, environment in ((("--no-color",), {}), ((), {"NO_COLOR": "1"})):
        with terminal(demo, tmp_path, "-m", "show tools", *arguments, **environment) as screen:
            assert screen.ended() == 0
            assert "\x1b[36m" not in screen.screen
            assert '→ get_weather {"city": "Oslo"}' in screen.plain


def test_a_question_is_asked_member_by_member_and_asked_again_if_the_answer_does_not_fit(
    demo: Command, tmp_path: Path
) -> None:
    with terminal(demo, tmp_path, "--thread", "asked") as screen:
        screen.expect("> ")
        screen.type("an interrupt, please")
        screen.expect("? Which colour shall it have?")
        screen.expect("colour (string): ")
        screen.type("green")
        screen.expect("It will be green.")
        screen.expect("> ")
        screen.type("another interrupt")
        screen.expect("colour (string): ")
        screen.type("")
        screen.expect("Then I choose for you: blue.")
        screen.expect("> ")
        screen.press(b"\x04")
        assert screen.ended() == 0


def test_an_approval_can_be_given_refused_and_given_with_other_arguments(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path) as screen:
        screen.expect("> ")
        for keys, outcome in (
            (["y"], "Sent to ada@example.com."),
            (["n", "not today"], "Nothing was sent."),
            (["g"], "Nothing was sent."),
        ):
            screen.type("ask for approval")
            screen.expect('→ send_mail {"to":"ada@example.com","subject":"Eagles"}')
            screen.expect("? Allow the call of send_mail?")
            for key in keys:
                screen.expect(": ")
                screen.type(key)
            screen.expect(outcome)
            screen.expect("> ")


CLEAR = "\x15"  # Ctrl-U: readline deletes the line up to the cursor

APPROVES = """
async def agent(run):
    approval = await run.approve("book", {"city": "Oslo", "nights": 2, "note": "sea\\nview"})
    yield f"booked: {sorted(approval.arguments.items())}"
"""


def test_an_unknown_answer_to_an_approval_is_named_and_asked_again(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path) as screen:
        screen.expect("> ")
        screen.type("ask for approval")
        screen.expect("[g]ive up: ")
        screen.type("what?")
        screen.expect("'what?' is not an answer; type y, n, e or g")
        screen.expect("[g]ive up: ")
        screen.type("y")
        screen.expect("Sent to ada@example.com.")


def test_the_arguments_of_a_call_are_edited_one_by_one_starting_from_their_values(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(APPROVES)
    with aguila_serve(tmp_path, "asks:agent") as server, terminal(server, tmp_path) as screen:
        screen.expect("> ")
        screen.type("Book it")
        screen.expect("[g]ive up: ")
        screen.type("e")
        screen.expect("    city: Oslo")
        screen.type(", Norway")  # at the end of the value
        screen.expect("    nights: 2")
        screen.type(CLEAR + "two")
        screen.expect("    not JSON: ")
        screen.expect("    nights: two")
        screen.type(CLEAR + "3")
        screen.expect('    note: "sea\\nview"')
        screen.type("")
        screen.expect(r"booked: [('city', 'Oslo, Norway'), ('nights', 3), ('note', 'sea\nview')]")


def test_a_file_is_attached_to_the_next_message(demo: Command, tmp_path: Path) -> None:
    (tmp_path / "note.txt").write_text("An eagle.")
    with terminal(demo, tmp_path, "--thread", "attached") as screen:
        screen.expect("> ")
        screen.type("/file nothing.txt")
        screen.expect("cannot read nothing.txt: No such file or directory")
        screen.type("/file")
        screen.expect("give the path of a file: /file PATH")
        screen.type("/file note.txt")
        screen.expect("note.txt is sent with the next message")
        for _ in range(2):
            screen.expect("> ")
            screen.type("show me text")
            screen.expect("everybody who watches sees it grow.")
    sent = [one["content"] for one in demo.get("/threads/attached").json()["messages"] if one["role"] == "user"]
    text, document = sent[0]
    assert text == {"type": "text", "text": "show me text"}
    assert (document["type"], document["metadata"]) == ("document", {"filename": "note.txt"})
    assert document["source"] == {"type": "data", "value": "QW4gZWFnbGUu", "mimeType": "text/plain"}
    assert sent[1] == "show me text"


def test_an_answer_can_be_stopped_and_the_talk_goes_on(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path, "--thread", "stopped") as screen:
        screen.expect("> ")
        screen.type("something slow")
        screen.expect(" 4 ")
        screen.press(b"\x03")
        screen.expect("cancelled")
        screen.expect("> ")
        wait_until(lambda: [run["status"] for run in demo.get("/threads/stopped").json()["runs"]] == ["cancelled"])
        screen.type("something slow")
        screen.expect("\n1 2 3 4 ")  # as it arrives, not at the end of the run
        screen.press(b"\x03")
        screen.expect("cancelled")
        screen.expect("> ")
        screen.type("help")
        screen.expect("- approval: ")
        screen.expect("> ")
        assert screen.ended(pressing=b"\x03") == 0


def test_an_answer_appears_after_runs_that_failed_or_were_cut_off_in_a_message(tmp_path: Path) -> None:
    def first_words(message_id: str, words: str, *last: Any) -> Callable[[Asked], Answer]:
        def answer(asked: Asked) -> Answer:
            start = run_started_json(asked.json["runId"], asked.json["threadId"])
            return Answer([frames([start, *text_message_json(message_id, words)[:2], *last])])

        return answer

    failed = first_words("b", "Second", {"type": "RUN_ERROR", "message": "The model is gone."})
    script = [first_words("a", "First"), failed, first_words("c", "Third")]
    with (
        ScriptedServer(*script) as server,
        Terminal(["-m", "aguila", "chat", server.url], tmp_path) as screen,
    ):
        for words, error in (("First", "cut off"), ("Second", "The model is gone."), ("Third", "cut off")):
            screen.expect("> ")
            screen.type("Hi")
            screen.expect(f"{words}\nerror: ")
            screen.expect(error)


def test_a_thread_is_taken_up_where_it_was_with_the_question_that_is_open(demo: Command, tmp_path: Path) -> None:
    done = aguila("chat", demo.url, "--thread", "later", folder=tmp_path, stdin=b"an interrupt, please")
    assert done.returncode == 3
    assert b"answer in a terminal with --thread later" in done.stderr
    with terminal(demo, tmp_path, "--thread", "later") as screen:
        screen.expect("> an interrupt, please\nLet me ask you something.")
        screen.expect("? Which colour shall it have?")
        screen.expect("colour (string): ")
        screen.type("red")
        screen.expect("It will be red.")


def test_in_a_pipe_only_the_answer_is_on_standard_output(demo: Command, tmp_path: Path) -> None:
    first = aguila("chat", demo.url, "--thread", "piped", "-m", "hello", folder=tmp_path)
    again = aguila("chat", demo.url, "--thread", "piped", folder=tmp_path, stdin=b"hello")
    assert first.stdout == again.stdout != b""


def test_a_run_that_is_on_is_joined(demo: Command, tmp_path: Path) -> None:
    with demo.run(thread_id="joined", run_id="r", messages=[{"id": "m", "role": "user", "content": "slow"}]) as stream:
        stream.read_until("TEXT_MESSAGE_CONTENT")
        stream.next()
    with terminal(demo, tmp_path, "--attach", "joined") as screen:
        shown = screen.expect(" 12 ")
        assert shown.startswith("> slow\n1 2")
        assert shown.split("\n")[1].split() == [str(number) for number in range(1, 12)]
        screen.press(b"\x03")
        screen.expect("cancelled")
    wait_until(lambda: demo.status_of("joined", "r") == "cancelled")


ASKS_AND_FAILS = """
async def agent(run):
    name = await run.ask("Your name?")
    raise ValueError(name)
"""


def test_a_message_typed_while_a_question_is_open_shows_the_question_again(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path, "--thread", "left-open") as screen:
        screen.expect("> ")
        screen.type("an interrupt, please")
        screen.expect("colour (string): ")
        screen.press(b"\x03")
        screen.expect("the question stays open", pressing=b"\n")
        screen.expect("> ")
        screen.type("Hello?")
        screen.expect("not sent: the agent waits for an answer to its question")
        screen.expect("? Which colour shall it have?")
        screen.expect("colour (string): ")
        screen.type("green")
        screen.expect("It will be green.")


def test_a_question_stays_answerable_when_the_agent_fails_after_the_answer(tmp_path: Path) -> None:
    (tmp_path / "asks.py").write_text(ASKS_AND_FAILS)
    with aguila_serve(tmp_path, "asks:agent") as server, terminal(server, tmp_path) as screen:
        screen.expect("> ")
        screen.type("Hello")
        screen.expect("answer: ")
        screen.type("Ada")
        screen.expect("error: ")
        screen.expect("> ")
        screen.type("Hello again")
        screen.expect("? Your name?")
        screen.expect("answer: ")
        screen.press(b"\x04")
        screen.expect("the question stays open")
        assert "Traceback" not in screen.plain


def test_in_a_pipe_a_message_to_a_thread_that_asks_is_refused_with_the_question(demo: Command, tmp_path: Path) -> None:
    for _ in range(2):
        done = aguila("chat", demo.url, "--thread", "asked-twice", folder=tmp_path, stdin=b"an interrupt, please")
        assert done.returncode == 3
        assert b"? Which colour shall it have?" in done.stderr
    assert b"not sent: the agent waits" in done.stderr


def test_a_misspelled_command_is_not_sent_to_the_agent(demo: Command, tmp_path: Path) -> None:
    with terminal(demo, tmp_path, "--thread", "typo") as screen:
        screen.expect("> ")
        screen.type("/sate")
        screen.expect("unknown command /sate; /help lists the commands, //sate sends it as text")
        screen.expect("> ")
        screen.type("//show me text")
        screen.expect("everybody who watches sees it grow.")
        screen.expect("> ")
    contents = [one["content"] for one in demo.get("/threads/typo").json()["messages"] if one["role"] == "user"]
    assert contents == ["/show me text"]


def test_to_attach_to_a_thread_that_does_not_exist_says_so(demo: Command, tmp_path: Path) -> None:
    done = aguila("chat", demo.url, "--attach", "missing", folder=tmp_path, stdin=b"")
    assert done.returncode == 2
    error = "error: thread 'missing' does not exist on this server, or is empty\n"
    assert done.stderr.decode() == error
    for arguments in ((), ("-m", "Hello")):
        with terminal(demo, tmp_path, "--attach", "missing", *arguments) as screen:
            assert screen.ended() == 2
            assert screen.plain == error
    assert demo.get("/threads/missing").status_code == 404  # no message was sent


# In a pipe


def test_in_a_pipe_the_answer_is_all_there_is_on_the_standard_output(demo: Command, tmp_path: Path) -> None:
    done = aguila("chat", demo.url, folder=tmp_path, stdin=b"call your tools\n")
    assert done.returncode == 0
    assert done.stdout == b"It is 24 degrees in Lisbon and 11 in Oslo.\n"
    shown = done.stderr.decode().splitlines()
    assert '→ get_weather {"city": "Lisbon"}' in shown
    assert '← {"city":"Oslo","degrees":11}' in shown
    assert "\x1b" not in done.stderr.decode()


def test_in_a_pipe_the_exit_status_says_how_it_went(demo: Command, tmp_path: Path) -> None:
    def status(url: str, *arguments: str, say: bytes = b"Hello") -> tuple[int, str]:
        done = aguila("chat", url, *arguments, folder=tmp_path, stdin=say)
        return done.returncode, done.stderr.decode()

    assert status(demo.url) == (0, "")
    code, said = status(demo.url, say=b"an error")
    assert code == 1
    assert said.startswith("error: The agent failed. Reference: ")
    assert status(f"{demo.url}/nowhere")[0] == 2
    assert status("http://127.0.0.1:9")[0] == 2
    assert status(demo.url, "--header", "nonsense")[0] == 2
    assert status(demo.url, "--thread", "a", "--attach", "b")[0] == 2
    code, said = status(demo.url, say=b"  ")
    assert code == 2
    assert said.startswith("aguila chat: there is nothing to send")


def test_a_cut_off_answer_is_a_failure_and_not_the_end(tmp_path: Path) -> None:
    with ScriptedServer(Answer([frames([run_started_json(), *text_message_json("m", "Half")[:2]])])) as server:
        done = aguila("chat", server.url, "-m", "Hi", folder=tmp_path)
    assert (done.returncode, done.stdout) == (1, b"Half\n")
    assert b"error: the run was cut off" in done.stderr


def test_what_goes_over_the_wire_can_be_recorded_and_tolerated_things_are_shown(tmp_path: Path) -> None:
    def answer(asked: Any) -> Answer:
        run, thread = asked.json["runId"], asked.json["threadId"]
        return Answer(
            [
                frames(
                    [
                        run_started_json(run, thread),
                        {"type": "WINGS"},
                        *text_message_json("m", "Hi"),
                        run_finished_json(run, thread),
                    ]
                )
            ]
        )

    with ScriptedServer(answer) as server:
        done = aguila("chat", server.url, "-m", "Fly", "-H", "X-Who: me", "--record", "kept.jsonl", folder=tmp_path)
        assert server.requests[0].headers["x-who"] == "me"
    assert (done.returncode, done.stdout) == (0, b"Hi\n")
    assert b"! WINGS: dropped an event of an unknown type" in done.stderr
    (stream,) = read_streams((tmp_path / "kept.jsonl").read_bytes(), "jsonl")
    assert len(stream.events) == 6
    assert stream.input["messages"][0]["content"] == "Fly"


# What is shown


def rendered(*events: Any, width: int = 200) -> str:
    out = StringIO()
    console = Console(file=out, width=width, soft_wrap=True, highlight=False)
    transcript = Transcript(console, console)
    for event in events:
        transcript.show(event)
    transcript.end()
    return out.getvalue()


def delta(message_id: str, words: str, owner: str | None = None) -> TextMessageContentEvent:
    return TextMessageContentEvent(message_id=message_id, delta=words, subagent_run_id=owner)


def test_two_messages_at_the_same_time_are_shown_one_after_the_other() -> None:
    a, b = (TextMessageStartEvent(message_id=one) for one in "ab")
    end_a, end_b = (TextMessageEndEvent(message_id=one) for one in "ab")
    lines = "one two\nuno due\n"
    assert (
        rendered(a, delta("a", "one"), b, delta("b", "uno"), delta("a", " two"), end_a, delta("b", " due"), end_b)
        == lines
    )
    assert rendered(a, delta("a", "one"), b, delta("b", "uno due"), end_b, delta("a", " two"), end_a) == lines
    c = TextMessageStartEvent(message_id="c")
    later = rendered(a, delta("a", "one two"), b, delta("b", "uno due"), end_b, end_a, c, delta("c", "then"))
    assert later == lines + "then\n"
    finish = RUN_FINISHED
    assert rendered(a, delta("a", "one two"), b, delta("b", "uno due"), finish) == lines


def test_a_run_that_ends_early_shows_its_waiting_text_and_leaves_nothing_open() -> None:
    out = StringIO()
    console = Console(file=out, width=200, soft_wrap=True, highlight=False)
    transcript = Transcript(console, console)
    a, b, c = (TextMessageStartEvent(message_id=one) for one in "abc")
    call = ToolCallStartEvent(tool_call_id="x", tool_call_name="search")
    for event in (a, delta("a", "one"), b, delta("b", "uno"), call):
        transcript.show(event)
    transcript.end_run()
    assert out.getvalue() == "one\nuno\n"
    for event in (c, delta("c", "eins")):
        transcript.show(event)
    assert out.getvalue() == "one\nuno\neins"
    transcript.show(ToolCallEndEvent(tool_call_id="x"))
    assert out.getvalue() == "one\nuno\neins\n→  \n"


def test_control_characters_are_shown_and_not_obeyed() -> None:
    evil = "\x1b]0;owned\x07 \x1b[2J \x9b31m \r over \x08 ok\ttab\nline"
    assert escape_controls(evil) == r"\x1b]0;owned\x07 \x1b[2J \x9b31m \x0d over \x08 ok" + "\ttab\nline"
    assert escape_controls("\u202etxt.exe\u2066 \u200f\u2028") == r"\u202etxt.exe\u2066 \u200f\u2028"
    assert escape_controls("\u200d\N{HEBREW LETTER ALEF}") == "\u200d\N{HEBREW LETTER ALEF}"
    assert "\x1b" not in rendered(TextMessageStartEvent(message_id="m"), delta("m", evil))
    patch = [{"op": "add", "path": "/\x1b[2J", "value": {"\x1b": "\x1b"}}]
    assert "\x1b" not in rendered(StateDeltaEvent(delta=patch))
    assert "\x1b" not in rendered(TextMessageStartEvent(message_id="m"), delta("m", "x", owner="\x1b[2J"))


def test_nothing_that_is_sent_is_taken_for_markup_or_broken_into_lines() -> None:
    assert rendered(delta("m", "[bold]x[/bold] [link=http://x]"), width=10) == "[bold]x[/bold] [link=http://x]\n"
    assert rendered(delta("m", "word " * 40), width=20) == "word " * 40 + "\n"


def test_every_event_type_can_be_shown() -> None:
    from aguila.stream.chunks import expand_chunks

    assert rendered(*expand_chunks(every_event())).count("\n") > 50
    assert rendered(ToolCallEndEvent(tool_call_id="never started")) == "→  \n"


def test_a_state_that_is_known_is_not_shown_again() -> None:
    empty, full = StateSnapshotEvent(snapshot={}), StateSnapshotEvent(snapshot={"a": 1})
    changed = StateDeltaEvent(delta=[{"op": "remove", "path": "/a"}])
    assert rendered(empty, full, full, changed, full) == 'state {"a":1}\nstate /a removed\nstate {"a":1}\n'


def test_long_values_are_cut() -> None:
    assert len(short({"a": "x" * 1000})) == 160
    assert short("line\nline") == "line line"


# Answers


def typed_answer(schema: Any, *typed: str) -> Any:
    answers = iter(typed)
    return ask_for(schema, "", lambda prompt: next(answers))


def test_answers_become_what_the_schema_asks_for() -> None:
    members = {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tall": {"type": "boolean"},
        "size": {"enum": ["S", "M"]},
    }
    schema = {"type": "object", "properties": members, "required": ["name"]}
    assert typed_answer(schema, "42", "7", "y", "M") == {"name": "42", "age": 7, "tall": True, "size": "M"}
    assert typed_answer(schema, "Ada", "", "no", "") == {"name": "Ada", "tall": False}
    assert typed_answer(schema, "") is GIVE_UP
    assert typed_answer({"type": "string"}, "12") == "12"
    assert typed_answer({"type": "number"}, "1.5") == 1.5
    assert typed_answer({"type": "number"}, "much") == "much"  # which the client will refuse, saying why
    assert typed_answer(None, '{"a": 1}') == {"a": 1}
    assert typed_answer(None, "just words") == "just words"
    assert typed_answer(None, " ") is GIVE_UP
    assert typed_answer({"type": "object", "properties": {"deep": {"type": "object"}}}, '{"deep": {}}') == {"deep": {}}


def test_the_prompts_say_what_is_wanted() -> None:
    prompts: list[str] = []

    def read(prompt: str) -> str:
        prompts.append(prompt)
        return "y"

    members = {"ok": {"type": "boolean"}, "size": {"enum": ["S", "M"]}}
    ask_for({"type": "object", "properties": members, "required": ["ok"]}, "  ", read)
    assert prompts == ["  ok (y/n): ", "  size (S | M), may be empty: "]


def test_help_explains_each_command() -> None:
    for name in ("chat", "check", "record", "replay", "compact", "convert"):
        done = aguila(name, "--help")
        assert done.returncode == 0
        assert b"Usage: aguila" in done.stdout
        assert name.encode() in done.stdout
