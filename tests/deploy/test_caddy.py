"""deploy/Caddyfile: Caddy accepts it, and streams pass through."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from deployed import DEPLOY, HEADERS, services
from ports import free_port
from processes.commands import Command
from serving import Peer

from aguila.codec.negotiate import PROTOBUF_MEDIA_TYPE


@pytest.fixture
def caddy() -> str:
    found = shutil.which("caddy")
    if found is None:
        reason = "Caddy is not installed: apt-get install caddy"
        (pytest.fail if os.environ.get("CI") == "true" else pytest.skip)(reason)
    assert found is not None
    return found


def is_old(caddy: str) -> bool:
    done = subprocess.run([caddy, "version"], capture_output=True, text=True)
    return done.stdout.strip().removeprefix("v").startswith("2.6.")


def test_the_file_is_valid_and_formatted(caddy: str, tmp_path: Path) -> None:
    file = str(DEPLOY / "Caddyfile")
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [caddy, "validate", "--adapter", "caddyfile", "--config", file]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert subprocess.run([caddy, "fmt", file], capture_output=True, text=True).stdout == Path(file).read_text()


def test_streams_pass_at_once_and_another_process_takes_over(caddy: str, tmp_path: Path) -> None:
    port = free_port()
    with services(tmp_path, str(tmp_path / "threads.db")) as running:
        text = (
            (DEPLOY / "Caddyfile").read_text().replace("agents.example.com {", f"http://agents.example.com:{port} {{")
        )
        for name, service in zip(("app-1:8000", "app-2:8000"), running, strict=True):
            text = text.replace(name, f"127.0.0.1:{service.port}")
        # Caddy 2.6, which Debian has, closes some streams while it still reads their request.
        text = text.replace("health_uri", "buffer_requests\n\t\thealth_uri") if is_old(caddy) else text
        (tmp_path / "Caddyfile").write_text("{\n\tadmin off\n}\n" + text)
        command = [caddy, "run", "--adapter", "caddyfile", "--config", str(tmp_path / "Caddyfile")]
        proxy = Command(command, port, tmp_path, "/", {"HOME": str(tmp_path)})  # other hosts get an empty 200
        message = {"id": "m", "role": "user", "content": "word " * 10_000}  # it runs for longer than the test
        try:
            with closing(Peer(proxy.url, **HEADERS)) as peer:
                for accept in ("text/event-stream", PROTOBUF_MEDIA_TYPE):
                    with peer.run(thread_id=accept, messages=[message], headers={"accept": accept}) as stream:
                        assert stream.status == 200
                        assert next(stream.response.iter_raw())
                running[0].stop()
                assert [peer.get("/threads").status_code for _ in running] == [200, 200]
        finally:
            proxy.stop()
