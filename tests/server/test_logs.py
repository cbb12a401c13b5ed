"""The log records of a run: one for each occurrence, with its ids."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from serving import run_input, serving
from waiting import wait_until

from aguila import App
from aguila.cli.output.logs import JSONFormatter, LineFormatter, log_config
from aguila.codec.logs import format_fields
from aguila.codec.notices import log_notice
from aguila.errors import StaleLease
from aguila.protocol import ImagePart, UrlSource
from aguila.server import Limits
from aguila.store import MemoryStore

OF_RUN = {"thread": "t", "run": "r"}


def fields(record: logging.LogRecord) -> dict[str, Any]:
    return vars(record)["fields"]


@pytest.mark.parametrize("kind", ["async", "plain"])
def test_notices_name_the_run_wherever_they_are_made(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    part = ImagePart(source=UrlSource(value="http://localhost/secret"))

    async def reads(run: Any) -> None:
        await run.file(part)

    def reads_in_a_thread(run: Any) -> None:
        run.file(part)

    with (
        caplog.at_level(logging.INFO, "aguila"),
        serving(App(reads if kind == "async" else reads_in_a_thread, store=MemoryStore())) as server,
    ):
        server.post("/", json={**run_input("t", "r"), "unheardOf": 1})
        wait_until(lambda: any("run ended" in record.getMessage() for record in caplog.records))
    request, read = [record for record in caplog.records if "rule" in vars(record).get("fields", {})]
    assert fields(request) == {**OF_RUN, "rule": "PROC-3", "path": "/unheardOf"}
    assert fields(read) == {**OF_RUN, "rule": "IN-8"}
    line = LineFormatter("%(message)s").format(read)
    assert line == f"{read.getMessage()} thread=t run=r"
    assert "secret" not in line + JSONFormatter().format(read)


def test_a_json_line_escapes_what_a_terminal_would_obey_and_keeps_the_text() -> None:
    text = "caf\u00e9 \u6f22 \U0001f985 \x1b[2J \x9b2J \x7f \u202egpj.exe \u2066 \u2028 \U000e0041 \ud800"
    record = logging.makeLogRecord({"msg": "%s", "args": (text,), "levelname": "INFO", "fields": {"path": text}})
    line = JSONFormatter().format(record)
    assert line.isprintable()
    assert "caf\u00e9 \u6f22 \U0001f985" in line
    assert (json.loads(line)["message"], json.loads(line)["path"]) == (text, text)


def test_what_an_older_client_cannot_read_is_logged_with_its_run(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        call = await run.tool_call("draw", {})
        await call.result([ImagePart(source=UrlSource(value="http://localhost/eagle.png"))])

    with (
        caplog.at_level(logging.INFO, "aguila"),
        serving(App(agent, store=MemoryStore(), warn=log_notice)) as server,
    ):
        server.post("/", json=run_input("t", "r", protocolVersion=...))
    found = [fields(record) for record in caplog.records if vars(record).get("fields", {}).get("rule") == "VER-16"]
    assert found
    assert all(one.items() >= OF_RUN.items() for one in found)


def test_a_run_that_another_process_has_ended_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    class Fenced(MemoryStore):
        async def write(self, *args: Any, **more: Any) -> Any:
            raise StaleLease("run 'r' is closed or has another owner")

    async def agent(run: Any) -> Any:
        for _ in range(3):
            await run.say("Hello")
        yield "all said"

    with (
        caplog.at_level(logging.INFO, "aguila"),
        serving(App(agent, store=Fenced())) as server,
        server.run(thread_id="t", run_id="r"),
    ):
        wait_until(lambda: any("run ended" in record.getMessage() for record in caplog.records))
    told = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.getMessage() for record in told] == [
        "the run lost its lease: run 'r' is closed or has another owner thread=t run=r"
    ]
    assert fields(told[0]) == OF_RUN


def test_what_is_wrong_with_a_form_is_no_line_of_the_log() -> None:
    assert log_config(as_json=True)["loggers"]["python_multipart"] == {"level": "CRITICAL"}


@pytest.mark.parametrize("size", [10, 200])
def test_a_state_that_a_client_could_not_send_back_is_a_notice(size: int, caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        run.state["x"] = "y" * size

    app = App(agent, store=MemoryStore(), limits=Limits(state=100))
    with caplog.at_level(logging.INFO, "aguila"), serving(app) as server:
        server.events(thread_id="t", run_id="r")
    found = [fields(one) for one in caplog.records if "bytes that a client may send" in one.getMessage()]
    assert found == ([{**OF_RUN, "rule": "limits"}] if size > 100 else [])


FORGED = "x\n2026-01-01 ERROR run ended thread=other\r\x1b[31m\u202e"


def test_foreign_text_cannot_forge_a_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def agent(run: Any) -> None:
        raise ValueError(run.messages[-1].content)

    message = {"id": "m", "role": "user", "content": FORGED}
    with caplog.at_level(logging.INFO, "aguila"), serving(App(agent, store=MemoryStore())) as server:
        server.post("/", json={**run_input(FORGED, FORGED), "messages": [message], FORGED: 1})
        wait_until(lambda: any("run ended" in record.getMessage() for record in caplog.records))
    assert any("ValueError" in LineFormatter().format(record) for record in caplog.records)
    for record in caplog.records:
        assert record.getMessage().isprintable()
        first, *more = LineFormatter("%(message)s").format(record).split("\n")
        assert first.isprintable()
        assert all(line.startswith("    ") and line.isprintable() for line in more)


def test_a_value_with_spaces_is_quoted() -> None:
    assert format_fields({"thread": "a run=b", "run": "plain-1"}) == "thread='a run=b' run=plain-1"
