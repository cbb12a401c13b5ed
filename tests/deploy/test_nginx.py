"""deploy/nginx.conf, before two processes on one PostgreSQL database."""

from __future__ import annotations

import re
from contextlib import ExitStack, closing
from pathlib import Path

from deployed import CLIENTS, DEPLOY, HEADERS, Service, load, services
from nginx import nginx
from serving import Peer


def config_for(services: list[Service]) -> str:
    """The file, with the ports of these processes and of the test."""
    text = (DEPLOY / "nginx.conf").read_text().replace("listen 80;", "listen PORT;")
    for given, service in zip(re.findall(r"127\.0\.0\.1:(\d+)", text), services, strict=True):
        text = text.replace(given, str(service.port))
    return text


def test_a_rolling_restart_under_load_loses_no_run(tmp_path: Path, postgres: str, postgres_schema: str) -> None:
    store = f"{postgres}?aguila_schema={postgres_schema}"
    with services(tmp_path, store) as running, nginx(config_for(running)) as url:
        with load(url) as said:
            for service in running:
                service.restart()
        assert len(said) > CLIENTS
        assert set(said) == {"I hear: one two three four five six "}


def test_viewers_at_every_process_see_a_run_while_it_runs_and_an_upload_fits(
    tmp_path: Path, postgres: str, postgres_schema: str
) -> None:
    store = f"{postgres}?aguila_schema={postgres_schema}"
    with services(tmp_path, store) as running, nginx(config_for(running)) as url, ExitStack() as stack:
        peers = [stack.enter_context(closing(Peer(url, **HEADERS))) for _ in range(3)]
        message = {"id": "m", "role": "user", "content": "word " * 10_000}  # it runs for longer than the test
        streams = [stack.enter_context(peers[0].run(thread_id="t", run_id="r", messages=[message]))]
        # nginx sends one request to each process in turn.
        streams += [stack.enter_context(peer.stream("GET", "/threads/t/events")) for peer in peers[1:]]
        for stream in streams:
            assert stream.read_until("TEXT_MESSAGE_CONTENT")["delta"].startswith("I hear: ")
        upload = {"file": ("large.bin", b"x" * (2 << 20), "application/octet-stream")}
        assert peers[1].post("/files", files=upload).status_code == 201
        assert peers[0].post("/threads/t/runs/r/cancel").status_code in (200, 202)
        for stream in streams:
            assert stream.rest()[-1]["type"] == "RUN_FINISHED"
