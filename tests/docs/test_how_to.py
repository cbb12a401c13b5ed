"""The programs of docs/how-to run: each page's own tests pass, and what it says of its programs is true."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from serving import REPOSITORY, serving
from stores.demo_store import aguila

from aguila import App, Client, Run
from aguila.testing import ClientMaker, sync_client_for

PAGES = sorted((REPOSITORY / "docs/how-to").glob("*.md"))
BLOCK = re.compile(r"^```python\n(# (\w+)\.py\n.*?)^```", re.MULTILINE | re.DOTALL)

Load = Callable[[str, str], ModuleType]


def programs(page: str) -> dict[str, str]:
    """Return the Python files that a page shows, by name."""
    return {name: code for code, name in BLOCK.findall((REPOSITORY / f"docs/how-to/{page}.md").read_text())}


@pytest.fixture
def load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Load:
    """Import a file of a page, as if the files of the page were in one directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("JWT_SECRET", "a secret of at least thirty-two bytes")
    monkeypatch.setenv("OPENAI_API_KEY", "none")  # a client is made, but sends no request

    def load_file(page: str, name: str) -> ModuleType:
        for needed in re.findall(r"^from (app|before) import", programs(page)[name], re.MULTILINE):
            load_file(page, needed)
        module = ModuleType(name)
        monkeypatch.setitem(sys.modules, name, module)
        exec(compile(programs(page)[name], f"{page}/{name}.py", "exec"), vars(module))
        return module

    return load_file


def use_app_for_clients(monkeypatch: pytest.MonkeyPatch, app: App) -> None:
    """Let every ``Client`` of a program call this app instead of its address."""

    def make(_: str, **options: Any) -> Client:
        return sync_client_for(app, **options)

    monkeypatch.setattr("aguila.Client", make)


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_a_page_begins_with_what_to_copy(page: str) -> None:
    first = (REPOSITORY / f"docs/how-to/{page}.md").read_text().split("\n\n")[1]
    assert first.startswith("```")


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_a_page_ends_with_what_goes_wrong(page: str) -> None:
    text = (REPOSITORY / f"docs/how-to/{page}.md").read_text()
    assert re.findall(r"^## (.+)$", text, re.MULTILINE)[-1] == "What goes wrong"


@pytest.mark.parametrize(
    ("page", "test"),
    [
        (page.stem, test)
        for page in PAGES
        for test in re.findall(r"^def (test_\w+)", programs(page.stem).get("test_app", ""), re.MULTILINE)
    ],
)
def test_the_tests_of_the_page_pass(page: str, test: str, load: Load, request: pytest.FixtureRequest) -> None:
    function = vars(load(page, "test_app"))[test]
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    function(**{name: request.getfixturevalue(name) for name in names})


@pytest.mark.parametrize("page", [page.stem for page in PAGES])
def test_the_snippets_of_the_page_run(page: str) -> None:
    for block in re.findall(r"^```python\n(.*?)^```", (REPOSITORY / f"docs/how-to/{page}.md").read_text(), re.M | re.S):
        if BLOCK.match(f"```python\n{block}```"):
            compile(block, page, "exec")
        else:
            exec(compile(block, page, "exec"), {})


def test_the_data_of_a_user_are_exported_and_erased(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    async def agent(run: Run) -> str:
        return "Hello."

    app = App(agent, store="aguila.db", authenticate=lambda request: "user-7")
    with sync_client_for(app) as client:
        client.thread("t1").run("Hi").result()
    text = (REPOSITORY / "docs/how-to/export-and-erase-data.md").read_text()
    (commands, _) = re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    for line in commands.splitlines():
        done = aguila(*shlex.split(line, comments=True)[1:])
        assert done.exit_code == 0, done.output
    assert '"t1"' in (tmp_path / "user-7.jsonl").read_text()
    assert "user-7" not in aguila("scopes", "list").stdout


def test_a_session_cookie_authenticates(load: Load, agui_client: ClientMaker) -> None:
    app = load("authenticate-users", "cookies").app
    known = agui_client(app, headers={"cookie": "session=5f1e"})
    assert known.thread().run("Hi").result().text == "Hello, ada."
    with pytest.raises(Exception, match="401 unauthenticated"):
        agui_client(app, headers={"cookie": "session=other"}).thread().run("Hi").result()


def test_a_model_may_propose_a_call_that_needs_approval(load: Load, agui_client: ClientMaker) -> None:
    models = pytest.importorskip("pydantic_ai.models.test")
    module = load("ask-for-approval", "model")
    with module.assistant.override(model=models.TestModel()):
        thread = agui_client(module.app).thread()
        (question,) = thread.run("Write to Ada").result().interrupts
        assert question.reason == "tool_call"
        text = thread.resume({question.id: {"approved": True}}).result().text
        assert "sent to" in (text or "")


def test_a_front_end_changes_the_state_between_runs(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    app = load("share-state", "app").app
    use_app_for_clients(monkeypatch, app)
    load("share-state", "client")
    assert capsys.readouterr().out == "2\n"


def test_a_client_changes_only_the_keys_that_it_may(load: Load, agui_client: ClientMaker) -> None:
    thread = agui_client(load("share-state", "trusted").app).thread(state={"price": 0, "draft": "soup"})
    thread.run("Go").result()
    thread.state.update(price=-100, draft="stew")
    assert thread.run("Go").result().text == "10 for 'stew'."


def test_a_program_uploads_a_photo(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    use_app_for_clients(monkeypatch, load("upload-files", "app").app)
    (tmp_path / "photo.png").write_bytes(b"\x89PNG\r\n\x1a\n")
    load("upload-files", "send")
    assert capsys.readouterr().out == "image: 8 bytes. \n"


@pytest.mark.parametrize(("name", "url"), [("before", "http://agent.test/agent"), ("app", ""), ("kept", "")])
def test_an_endpoint_of_ag_ui_and_what_replaces_it_answer_alike(
    name: str, url: str, load: Load, agui_client: ClientMaker
) -> None:
    app = load("migrate-from-ag-ui", name).app
    client = agui_client(app, url=url or "http://agent.test")
    assert client.thread().run("Hi").result().text == "You said: Hi"


def test_a_page_of_copilotkit_finds_the_agent_and_its_credentials_count(load: Load) -> None:
    with serving(load("migrate-from-copilotkit-runtime", "app").app) as server:
        path = "/copilotkit/info"
        assert server.get(path).status_code == 401
        found = server.get(path, headers={"authorization": "Bearer ada-token"})
    assert list(found.json()["agents"]) == ["default"]


@pytest.mark.parametrize("page", ["migrate-from-langgraph", "migrate-from-agent-framework"])
def test_the_program_of_a_framework_is_the_one_that_the_tests_of_frameworks_run(page: str) -> None:
    """tests/peers, where the frameworks are installed, runs those of docs/frameworks.md."""
    program = programs(page)["app"].removeprefix("# app.py\n")
    assert f"```python\n{program}```" in (REPOSITORY / "docs/frameworks.md").read_text()


def test_a_client_prints_the_answer_of_a_graph(
    load: Load, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def agent(run: Run) -> str:
        return f"You said {run.user_text!r}."

    use_app_for_clients(monkeypatch, App(agent, store="threads.db"))
    load("migrate-from-langgraph", "client")
    assert capsys.readouterr().out == "You said 'Hello'."
