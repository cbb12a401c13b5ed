"""``aguila serve`` as people use it: in a process of its own, in a folder with an agent in it."""

from __future__ import annotations

import inspect
import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import httpx2
import pydantic.fields  # noqa: F401 - typer imports it on first use, which fails while sys.modules is replaced
import pytest
import uvicorn
from processes import forked
from processes.commands import Command, aguila_serve
from serve_options import AGENT, GIVEN, app_options, no_logs, written
from serving import REPOSITORY, Held, check_valid, text_of, types
from typer.testing import CliRunner
from waiting import DEADLINE, wait_until

import aguila.codec.protobuf.reader
import aguila.codec.protobuf.writer  # an app imports them on first use, as typer does pydantic.fields
from aguila import server
from aguila.cli import serve
from aguila.cli.commands import commands
from aguila.cli.demo import FEATURES
from aguila.cli.options.serve import APP_OPTIONS, REMOVED
from aguila.cli.options.serve import serve as serve_command
from aguila.server import App
from aguila.server.frontends.copilotkit import DEFAULT_PATH
from aguila.server.frontends.options import FrontEnd, front_end_options
from aguila.server.frontends.page.files import PageFiles
from aguila.store import MemoryStore, Retention

PYTHON = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(AGENT)
    return tmp_path


def aguila(*arguments: str, folder: Path | None = None) -> subprocess.CompletedProcess[str]:
    done = forked.aguila(*arguments, folder=folder)
    return subprocess.CompletedProcess(done.args, done.returncode, done.stdout.decode(), done.stderr.decode())


def asking(text: str) -> list[dict[str, Any]]:
    return [{"id": "m1", "role": "user", "content": text}]


def test_an_agent_of_the_current_folder_is_served_from_a_file_there(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent") as server:
        events = server.events(messages=asking("Hi"))
        check_valid(events)
        assert text_of(events) == "Hello from here"
        assert f"mine:agent at {server.url}, threads in {folder / 'aguila.db'}" in server.log
    with aguila_serve(folder, "mine:other") as server:
        assert text_of(server.events(run_id="then", messages=asking("Hi"))) == "Another one"
        assert [one["runs"] for one in server.get("/threads").json()["threads"]] == [2]


def test_without_a_name_the_agent_is_called_agent_and_the_file_can_be_elsewhere(folder: Path) -> None:
    (folder / "kept").mkdir()
    with aguila_serve(folder, "mine", "--store", "kept/threads.db") as server:
        assert text_of(server.events()) == "Hello from here"
    assert (folder / "kept" / "threads.db").exists()


def test_a_store_that_cannot_be_is_said_so(folder: Path) -> None:
    done = aguila("serve", "mine", "--store", "missing/threads.db", "--port", "0", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"aguila serve: {folder / 'missing' / 'threads.db'} cannot be used as a store:"
        f" there is no folder {folder / 'missing'}\n"
    )
    (folder / "text.db").write_text("this is no database, whatever it is called" * 20)
    (folder / "own.py").write_text("import aguila, mine\napp = aguila.App(mine.agent, store='text.db')\n")
    for target in (["mine", "--store", "text.db"], ["own:app"]):
        done = aguila("serve", *target, "--port", "0", folder=folder)
        assert (done.returncode, done.stdout) == (1, "")  # no address was printed
        (line,) = done.stderr.splitlines()
        assert line.startswith("aguila serve: ")
        assert line.endswith("text.db cannot be used as a store: SQLite: file is not a database (SQLITE_NOTADB)")


def test_an_app_is_served_as_it_is(folder: Path) -> None:
    (folder / "whole.py").write_text(
        "import aguila, mine\napp = aguila.App(mine.agent, capabilities={'identity': {'name': 'whole'}})\n"
    )
    with aguila_serve(folder, "whole:app") as server:
        assert text_of(server.events()) == "Hello from here"
        assert server.get("/capabilities").json()["identity"] == {"name": "whole"}
        assert server.get("/threads").status_code == 403
    assert not (folder / "aguila.db").exists()


def test_a_dict_of_agents_is_served_by_name(folder: Path) -> None:
    (folder / "several.py").write_text("import mine\nagents = {'default': mine.agent, 'second': mine.other}\n")
    with aguila_serve(folder, "several:agents") as server:
        assert text_of(server.events(thread_id="t1")) == "Hello from here"
        assert text_of(server.events(path="/agents/second", thread_id="t2")) == "Another one"


def test_a_copilotkit_page_is_served_and_its_settings_are_printed(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--copilotkit-path", "/kit") as server:
        assert list(server.get("/kit/info").json()["agents"]) == ["default"]
        assert server.post("/kit", json={"method": "info"}).json()["singleRoute"]["threadEndpoints"]["list"] is True
        assert f'<CopilotKit runtimeUrl="{server.url}/kit">' in server.log
    with aguila_serve(folder, "mine:agent", "--copilotkit") as server:
        assert server.get("/copilotkit/info").status_code == 200


def test_every_option_of_an_app_reaches_it_only_if_it_is_given(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert list(GIVEN) == list(APP_OPTIONS)
    every = [word for option in GIVEN for word in written(option)]
    plain, full = (app_options(folder, monkeypatch, *given) for given in ([], every))
    local = ["localhost", "127.0.0.1", "::1", "127.0.0.1"]
    assert plain == {
        "store": str(folder / "aguila.db"),
        "allow_anonymous": True,
        "allowed_hosts": local,
        "page": True,
    }
    assert full.pop("store") == str(folder / "x.db")
    assert full.pop("allow_anonymous") is True
    assert full.pop("allowed_hosts") == [*local, "a.example"]
    assert full == {
        APP_OPTIONS[option]: value for option, (_, value) in GIVEN.items() if option not in ("store", "allowed_host")
    }


def test_what_the_help_calls_a_default_is_the_default_of_an_app() -> None:
    of_app = {name: one.default for name, one in inspect.signature(App).parameters.items()}
    for option, one in inspect.signature(serve_command).parameters.items():
        name = APP_OPTIONS.get(option, "store")
        if option == "copilotkit_path":
            assert one.default == DEFAULT_PATH  # that of copilotkit=True
        elif name != "store":
            assert one.default == (of_app[name] or None) or one.default == of_app[name], option


def test_every_option_is_in_the_documents() -> None:
    text = "".join((REPOSITORY / "docs" / f"{name}.md").read_text() for name in ("cli", "options"))
    options = [name for name in inspect.signature(serve_command).parameters if name not in ("context", "target")]
    written_as = {"front_end": "for"}  # a keyword of Python
    assert [name for name in options if f"`--{written_as.get(name, name).replace('_', '-')}" not in text] == []


@pytest.mark.parametrize("name", get_args(FrontEnd))
def test_for_sets_the_options_that_a_front_end_needs(
    folder: Path, monkeypatch: pytest.MonkeyPatch, name: FrontEnd
) -> None:
    options = app_options(folder, monkeypatch, "--for", name)
    needed = front_end_options(name)
    assert {option: options.get(option) for option in needed} == needed


def test_an_option_beside_for_wins(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = app_options(folder, monkeypatch, "--for", "tdesign", "--history", "client")
    assert options["history"] == "client"
    options = app_options(folder, monkeypatch, "--copilotkit-path", "/kit", "--for", "copilotkit")
    assert (options["copilotkit"], options["langgraph_interrupts"]) == ("/kit", True)


OPTIONS = """target host port workers reload json_logs debug store history busy drain keep_seconds allowed_host
cors_origin header upstream_header copilotkit copilotkit_path langgraph_interrupts page open front_end log_level
forwarded_allow_ips model instructions mcp tools config trace_url metrics"""


def test_the_command_has_31_options() -> None:
    options = [name for name in inspect.signature(serve_command).parameters if name != "context"]
    assert (sorted(options), len(options)) == (sorted(OPTIONS.split()), 31)


@pytest.mark.parametrize("option", REMOVED)
@pytest.mark.parametrize("value", [" 1", "=1"])
def test_an_option_that_is_gone_names_its_new_place(option: str, value: str) -> None:
    done = CliRunner().invoke(commands, ["serve", *f"{option}{value}".split()], env={"COLUMNS": "200"})
    assert done.exit_code == 2
    assert f"{option} is gone; use {REMOVED[option]}" in " ".join(done.output.replace("│", " ").split())


@pytest.mark.parametrize("place", REMOVED.values())
def test_the_new_place_of_an_option_exists(place: str) -> None:
    if place.startswith("App("):
        names = {name: getattr(server, name) for name in server.__all__} | {"Retention": Retention}
        options = eval(place.removesuffix(" for parallel texts").replace("App(", "dict(", 1), names)
        App(Held(), **options)


def test_for_lists_the_front_ends_that_it_knows(folder: Path) -> None:
    done = CliRunner().invoke(commands, ["serve", "--for", "gradio"])
    assert done.exit_code == 2
    for name in get_args(FrontEnd):
        assert name in done.output


def test_on_this_machine_it_answers_to_no_foreign_name(folder: Path) -> None:
    """Otherwise DNS rebinding would give a foreign page the origin of the server."""
    with aguila_serve(folder, "mine:agent", "--allowed-host", "agents.test") as server:
        port = server.url.rpartition(":")[2]
        for host, status in (("evil.example", 403), ("localhost", 200), ("[::1]", 200), ("agents.test", 200)):
            assert server.get("/threads", headers={"host": f"{host}:{port}"}).status_code == status, host


@pytest.mark.parametrize("options", [*(written(option) for option in GIVEN), ["--for", "tdesign"]], ids=lambda o: o[0])
def test_what_an_app_says_itself_cannot_be_said_beside_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: list[str]
) -> None:
    expected = '--for (as **front_end_options("tdesign"))' if options[0] == "--for" else options[0]
    (folder / "whole.py").write_text("import aguila, mine\napp = aguila.App(mine.agent, store='a.db')\n")
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    done = CliRunner().invoke(commands, ["serve", "whole:app", "--port", "0", *options])
    assert done.exit_code == 1
    message = f"whole:app is an App with its own options; pass these to App(...): {expected}"
    assert done.stderr == f"aguila serve: {message}\n"


@pytest.mark.parametrize("path", ["nope", "/threads"])
def test_a_path_that_copilotkit_cannot_have_is_one_line(folder: Path, path: str) -> None:
    done = aguila("serve", "mine:agent", "--port", "0", "--copilotkit-path", path, folder=folder)
    assert done.returncode == 1
    assert done.stderr.startswith("aguila serve: copilotkit")
    assert done.stderr.count("\n") == 1


def test_several_workers_cannot_share_memory(folder: Path) -> None:
    (folder / "whole.py").write_text("import aguila, mine\napp = aguila.App(mine.agent)\n")
    done = aguila("serve", "whole:app", "--port", "0", "--workers", "2", folder=folder)
    assert done.returncode == 1
    message = "several workers cannot share threads in memory; use --store STORE, or App(store=path)"
    assert done.stderr == f"aguila serve: {message}\n"


def test_a_store_in_memory_makes_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    apps: list[App] = []

    def run(server: Any, sockets: list[socket.socket]) -> None:
        sockets[0].close()
        apps.append(server.config.app.app)

    monkeypatch.chdir(folder)
    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(serve, "log_config", no_logs)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    done = CliRunner().invoke(commands, ["serve", "--port", "0", "--store", ":memory:"])
    assert done.exit_code == 0, done.output
    assert isinstance(apps[0].store, MemoryStore)
    assert "threads in memory" in done.stdout
    assert "--store STORE keeps them" in done.stdout
    assert [path.name for path in folder.iterdir()] == ["mine.py"]


def test_the_server_waits_for_as_long_as_the_app_drains(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "slow_app.py").write_text("import aguila, mine\napp = aguila.App(mine.agent, drain=70)\n")
    found: list[Any] = []

    def run(server: Any, sockets: list[socket.socket]) -> None:
        sockets[0].close()
        found.append(server)

    monkeypatch.setattr(uvicorn.Server, "run", run)
    monkeypatch.setattr(serve, "log_config", no_logs)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    what = serve.Serving(target="slow_app:app", folder=str(folder), store=str(folder / "aguila.db"))
    serve.serve(what, port=0, workers=1, reload=False, json_logs=False)
    (server,) = found
    assert server.config.timeout_graceful_shutdown >= 70


def test_the_commands_that_it_prints_work_and_work_again(folder: Path) -> None:
    with aguila_serve(folder) as server:
        chat = next(line for line in server.log.splitlines() if " chat http" in line)
        arguments = shlex.split(chat)
        assert arguments[-2:] == ["chat", server.url]
        assert server.log.index(" chat http") < server.log.index("curl ")
        done = subprocess.run([*arguments, "-m", "help"], cwd=folder, capture_output=True, text=True, check=False)
        assert all(f"- {keyword}: " in done.stdout for keyword in FEATURES), done
        for second in ("1", "2"):
            log = server.log.replace("$(date +%s)", second)  # as a shell would replace it
            talk, look = [shlex.split(line) for line in log.splitlines() if line.startswith("  curl ")]
            assert talk[:2] == ["curl", "-N"]
            header, _, value = talk[4].partition(": ")
            body = talk[-1].replace("help", "interrupt")
            answer = server.post(talk[2].removeprefix(server.url) or "/", content=body, headers={header: value})
            assert answer.status_code == 200
            assert '"type":"interrupt"' in answer.text
        assert look == ["curl", f"{server.url}/threads"]
        assert {"curl-1", "curl-2"} <= {one["threadId"] for one in server.get("/threads").json()["threads"]}


def test_a_run_on_a_thread_that_asks_is_refused_with_the_way_to_answer(folder: Path) -> None:
    with aguila_serve(folder) as server:
        (interrupt,) = server.events(messages=asking("interrupt"))[-1]["outcome"]["interrupts"]
        new = [{"id": "new", "role": "user", "content": "interrupt"}]  # the same message again would be a branch
        with server.run(run_id="again", messages=new) as stream:
            assert stream.status == 422
            message = json.loads(stream.response.read())["error"]["message"]
    assert f'"interruptId": "{interrupt["id"]}"' in message
    assert '"resume"' in message


@pytest.mark.parametrize(
    ("options", "host", "printed"),
    [
        ({}, "127.0.0.1", ["-N http://127.0.0.1:80"]),
        ({"allow_anonymous": True}, "127.0.0.1", ["-N http://127.0.0.1:80", "http://127.0.0.1:80/threads"]),
        ({}, "0.0.0.0", ["-N http://127.0.0.1:80"]),
        ({}, "::", ["-N http://[::1]:80"]),
        ({"authenticate": str}, "127.0.0.1", ["http://127.0.0.1:80/healthz"]),
        ({"allowed_hosts": ["site.example"]}, "127.0.0.1", ["http://127.0.0.1:80/healthz"]),
    ],
)
def test_it_prints_only_commands_that_will_be_answered(options: Any, host: str, printed: list[str]) -> None:
    what = serve.Serving(target="x:app", folder=".", store="aguila.db", host=host)
    text = serve.welcome(what, App(print, **options), 80)
    commands = [line.removeprefix("  curl ") for line in text.splitlines() if line.startswith("  curl ")]
    assert [command.partition(" -H")[0] for command in commands] == printed
    assert ("Every client that reaches" in text) is (host in ("0.0.0.0", "::"))


def test_the_server_in_the_readme_is_served_as_it_says(tmp_path: Path) -> None:
    readme = (REPOSITORY / "README.md").read_text()
    (tmp_path / "hello.py").write_text(
        next(block for block in PYTHON.findall(readme) if block.startswith("# hello.py"))
    )
    assert "aguila serve hello:agent " in readme
    for target in ("hello:agent", "hello:app"):
        with aguila_serve(tmp_path, target) as server:
            asked = server.events(messages=asking("Hi"))
            check_valid(asked)
            assert text_of(asked) == "Hello. "
            (interrupt,) = asked[-1]["outcome"]["interrupts"]
            entry = {"interruptId": interrupt["id"], "status": "resolved", "payload": "Ada"}
            resumed = server.events(run_id="then", messages=asking("Hi"), state={"greetings": 1}, resume=[entry])
            check_valid(resumed)
            assert types(resumed)[1:-1] == ["TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "TOOL_CALL_RESULT"]


def test_a_run_is_two_lines_of_the_log(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent") as server:
        before = len(server.log.splitlines())
        server.events(thread_id="t", run_id="r")
        started, ended = wait_until(lambda: server.log.splitlines()[before:][1:] and server.log.splitlines()[before:])
        assert started.endswith("INFO run started thread=t run=r")
        assert " INFO run ended thread=t run=r outcome=success ms=" in ended


def test_logs_can_be_json(folder: Path) -> None:
    with aguila_serve(folder, "aguila.cli.demo:agent", "--json-logs") as server:
        before = len(server.log.splitlines())
        *_, last = server.events(thread_id="t", run_id="r", messages=asking("error"))
        lines = wait_until(lambda: server.log.splitlines()[before:][2:] and server.log.splitlines()[before:])
        started, failed, ended = [json.loads(line) for line in lines]
        assert (started["message"], started["thread"], started["run"]) == ("run started", "t", "r")
        reference = last["message"].removeprefix("The agent failed. Reference: ")
        assert failed["message"] == "the run failed"
        assert (failed["thread"], failed["run"], failed["reference"]) == ("t", "r", reference)
        assert failed["code"] == "agent_error"
        assert "the demo fails when it is asked to" in failed["exception"]
        assert (ended["message"], ended["outcome"], ended["level"]) == ("run ended", "error", "info")
        assert isinstance(ended["ms"], int)


def test_on_sigterm_runs_may_finish_for_a_while_and_are_then_stopped(folder: Path) -> None:
    with aguila_serve(folder, "aguila.cli.demo:agent", "--drain", "0.3") as server:
        with server.run(messages=asking("slow")) as stream:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            server.process.send_signal(signal.SIGTERM)
            last = stream.rest()[-1]
        assert (last["type"], last["code"]) == ("RUN_ERROR", "server_stopped")
        assert server.process.wait(DEADLINE) in (0, -signal.SIGTERM)
        assert "INFO shutting down; runs in progress have 0.3 seconds to finish" in server.log
        assert "Traceback" not in server.log
    with aguila_serve(folder) as server:
        assert server.status_of("thread", "run") == "error"


def test_several_workers_share_the_file(folder: Path) -> None:
    with aguila_serve(folder, "aguila.cli.demo:agent", "--workers", "2", "--drain", "0.3") as server:
        for number in range(8):
            with server.peer() as peer:
                assert types(peer.events(thread_id=f"t{number}", messages=asking("help")))[-1] == "RUN_FINISHED"
        with server.run(thread_id="slow", messages=asking("slow")) as stream, server.peer() as peer:
            stream.read_until("TEXT_MESSAGE_CONTENT")
            peer.post("/threads/slow/runs/run/cancel")
            assert stream.rest()[-1]["outcome"] == {"type": "cancelled"}
        assert len(server.get("/threads").json()["threads"]) == 9
        assert server.terminate() in (0, -signal.SIGTERM)


def test_with_reload_changed_code_is_served(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--reload") as server:
        assert text_of(server.events()) == "Hello from here"
        (folder / "mine.py").write_text(AGENT.replace("Hello from here", "Hello from the new one"))
        stamp = (folder / "mine.py").stat().st_mtime + 5  # the old one may be of the same moment
        os.utime(folder / "mine.py", (stamp, stamp))
        wait_until(lambda: _says(server, "Hello from the new one"))


def _says(server: Command, words: str) -> bool:
    try:
        with server.peer() as peer, peer.run(run_id=os.urandom(4).hex()) as stream:
            return stream.status == 200 and text_of(stream.rest()) == words
    except httpx2.TransportError:  # it is starting again
        return False


def test_a_taken_port_is_said_so() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = aguila("serve", "--port", str(port))
    assert done.returncode == 1
    expected = (
        f"aguila serve: port {port} of 127.0.0.1 is in use; choose another with --port, or --port 0 for a free one\n"
    )
    assert done.stderr == expected


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nowhere:agent", "there is no module nowhere in"),
        ("mine.deeper:agent", "there is no module mine.deeper in"),
        ("mine.py:agent", "mine.py:agent names a file, not a module; did you mean mine:agent?"),
        ("./sub/mine.py", "./sub/mine.py names a file, not a module; did you mean sub.mine:agent?"),
        ("mine:nobody", "mine has no 'nobody'; name the agent with mine:name"),
    ],
)
def test_a_target_that_is_none_is_said_so(
    folder: Path, monkeypatch: pytest.MonkeyPatch, target: str, message: str
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setattr(sys, "modules", {**sys.modules})
    with pytest.raises(serve.CannotServe, match=re.escape(message)):
        serve.find(target, str(folder))


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("nothing", "as agent(run); int is not callable"),
        ("alone", "as agent(run); alone() is not: too many positional arguments"),
    ],
)
def test_what_cannot_be_called_with_a_run_is_refused_at_the_start(folder: Path, name: str, reason: str) -> None:
    (folder / "mine.py").write_text(AGENT + "def alone():\n    return 1\n")
    done = aguila("serve", f"mine:{name}", "--port", "0", folder=folder)
    assert (done.returncode, done.stdout) == (1, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(
        f"aguila serve: mine:{name} is neither an agent nor a dict of agents: an agent must be callable"
    )
    assert line.endswith(reason)


def test_what_fails_in_the_module_is_not_hidden(folder: Path) -> None:
    (folder / "broken.py").write_text("import nowhere_to_be_found\n")
    done = aguila("serve", "broken:agent", "--port", "0", folder=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines() == [
        "aguila serve: cannot import broken:",
        "Traceback (most recent call last):",
        f'  File "{folder}/broken.py", line 1, in <module>',
        "    import nowhere_to_be_found",
        "ModuleNotFoundError: No module named 'nowhere_to_be_found'",
    ]
    (folder / "mistyped.py").write_text("def agent(run:\n    pass\n")
    done = aguila("serve", "mistyped:agent", "--port", "0", folder=folder)
    assert done.returncode == 1
    assert done.stderr.splitlines()[:2] == [
        "aguila serve: cannot import mistyped:",
        f'  File "{folder}/mistyped.py", line 1',
    ]
    assert done.stderr.endswith("SyntaxError: '(' was never closed\n")
    done = aguila("serve", "mine:nobody", "--port", "0", folder=folder)
    assert done.returncode == 1
    assert done.stderr == "aguila serve: mine has no 'nobody'; name the agent with mine:name\n"
    assert done.stdout == ""


def test_beyond_this_machine_listing_needs_an_app_with_authentication(folder: Path) -> None:
    with aguila_serve(folder, "mine:agent", "--host", "0.0.0.0") as server:
        assert types(server.events())[-1] == "RUN_FINISHED"
        assert server.get("/threads").json()["error"]["code"] == "anonymous_not_allowed"
        assert "Every client that reaches this address can use it" in server.log


@pytest.mark.parametrize(
    ("host", "local"),
    [
        *((host, True) for host in ("127.0.0.1", "127.8.8.8", "::1", "localhost")),
        *((host, False) for host in ("0.0.0.0", "::", "192.168.1.4", "example.com")),
    ],
)
def test_which_addresses_only_this_machine_reaches(host: str, local: bool) -> None:
    assert serve.is_loopback(host) is local


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("def agent(run:\n", "SyntaxError"),
        ("other = 1\n", "mine has no 'agent'"),
        ("import sys\nsys.exit('no API key')\n", "the agent's module exits when it is imported: no API key"),
    ],
)
def test_with_reload_requests_get_503_until_the_agent_can_be_imported_again(
    folder: Path, code: str, shown: str
) -> None:
    def write(code: str, seconds: int) -> None:
        (folder / "mine.py").write_text(code)
        stamp = (folder / "mine.py").stat().st_mtime + seconds  # the old one may be of the same moment
        os.utime(folder / "mine.py", (stamp, stamp))

    with aguila_serve(folder, "mine:agent", "--reload") as server:
        write(code, 5)
        wait_until(lambda: "answered with 503" in server.log)
        assert shown in server.log
        assert "Traceback" not in server.log
        message = "the agent cannot be imported; the terminal of the server shows why"
        for answer in (server.get("/"), server.get("/threads/t"), server.post("/", json={})):
            assert answer.status_code == 503
            assert answer.headers["content-type"] == "application/json"
            assert answer.json() == {"error": {"code": "agent_not_loaded", "message": message}}
        write(AGENT.replace("Hello from here", "Mended"), 10)
        wait_until(lambda: _says(server, "Mended"))


LOGS = """
import logging

async def agent(run):
    logging.getLogger("mine").info("looked it up")
    yield "Hello"
"""


@pytest.mark.parametrize("level", ["info", "warning"])
def test_the_log_has_the_agents_own_records_from_the_level_that_was_asked_for(level: str, tmp_path: Path) -> None:
    (tmp_path / "logs.py").write_text(LOGS)
    with aguila_serve(tmp_path, "logs:agent", "--log-level", level) as server:
        server.events()
        if level == "info":
            wait_until(lambda: "INFO run ended" in server.log)
        server.terminate()
        assert ("looked it up" in server.log, "INFO" in server.log) == (level == "info", level == "info")


def test_help_is_readable_at_110_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "110")
    for command in ("chat", "check", "record", "replay", "compact", "convert"):
        lines = CliRunner().invoke(commands, [command, "--help"], env={"TERMINAL_WIDTH": "110"}).output.splitlines()
        prose = [line.strip() for line in lines if line.startswith(" ")]
        for line, after in pairwise(prose):
            # A line that is broken early, before another one of the same paragraph, comes from the source.
            assert not after or not line or len(line) + len(after.split()[0]) > 90 or line.endswith((".", "]")), line
    output = CliRunner().invoke(commands, ["serve", "--help"]).output
    panels = ["Server", "Threads and retention", "Runs", "Access and input", "Front ends"]
    assert [panel for panel in panels if f"─ {panel} ─" in output] == panels


@pytest.mark.parametrize(
    "command", [[], ["serve"], ["chat"], ["inspect"], ["replay"], ["store"], ["store", "check"]], ids=" ".join
)
def test_help_shows_whole_names_of_options_at_80_columns(command: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    output = CliRunner().invoke(commands, [*command, "--help"], env={"TERMINAL_WIDTH": "80"}).output
    assert "--help" in output
    assert "…" not in output
    assert "<bool>" not in output  # a flag takes no value


def test_without_arguments_it_says_what_it_is_and_can_do() -> None:
    done = aguila()
    assert done.returncode == 0
    assert done.stdout.startswith("aguila 0.")
    assert "layers: protocol, codec, stream" in done.stdout
    assert "Serve an agent over AG-UI" in done.stdout


def test_without_its_extra_the_command_names_it() -> None:
    code = "import sys; sys.modules['typer'] = None; from aguila.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "pip install 'aguila[cli]'" in done.stderr


def test_the_page_is_announced_when_it_is_built_and_opened_if_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened: list[str] = []
    monkeypatch.setattr("webbrowser.open", opened.append)
    page = PageFiles(tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: (tmp_path / "index.html").touch())
    serve.announce_page(page, "http://127.0.0.1:1/", open_page=False)
    assert capsys.readouterr().out == "The page is ready: http://127.0.0.1:1/\n"
    serve.announce_page(page, "http://127.0.0.1:1/", open_page=True)
    assert opened == ["http://127.0.0.1:1/"]
    assert capsys.readouterr().out == ""


def test_open_needs_the_page(folder: Path) -> None:
    done = aguila("serve", "mine:agent", "--port", "0", "--no-page", "--open", folder=folder)
    assert done.returncode == 1
    assert done.stderr == "aguila serve: --open needs the page; drop --no-page, or use App(page=True)\n"


@pytest.mark.parametrize(
    ("host", "target", "has_page"),
    [
        ("127.0.0.1", "mine:agent", True),
        ("0.0.0.0", "mine:agent", False),
        ("127.0.0.1", "apps:plain", True),
        ("0.0.0.0", "apps:plain", False),
        ("127.0.0.1", "apps:without", False),
    ],
)
def test_the_page_is_on_by_default_only_on_loopback(
    folder: Path, monkeypatch: pytest.MonkeyPatch, host: str, target: str, has_page: bool
) -> None:
    apps = "import aguila, mine\nplain = aguila.App(mine.agent)\nwithout = aguila.App(mine.agent, page=False)\n"
    (folder / "apps.py").write_text(apps)
    monkeypatch.delitem(sys.modules, "apps", raising=False)
    what = serve.Serving(target=target, folder=str(folder), store=serve.MEMORY, host=host)
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    app = serve.build(what)
    assert (app.page is not None) is has_page
    assert (
        "in a browser" in serve.welcome(what, app, 80) or "page is not built" in serve.welcome(what, app, 80)
    ) is has_page
