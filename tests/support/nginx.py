"""nginx for tests, in front of servers of a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from ports import free_port
from waiting import wait_until

_USER = "nobody" if os.getuid() == 0 else None
"""The user that runs nginx if the tests run as root."""

_CONFIG = """
daemon off;
master_process off;
pid {folder}/pid;
error_log stderr;
events {{ worker_connections 512; }}
http {{
    access_log off;
    client_body_temp_path {folder}/body;
    proxy_temp_path {folder}/proxy;
    fastcgi_temp_path {folder}/fastcgi;
    uwsgi_temp_path {folder}/uwsgi;
    scgi_temp_path {folder}/scgi;
{http}
}}
"""


def find_nginx() -> str:
    """Return the path of nginx. If it is not installed, skip the test; with ``CI=true``, fail it."""
    program = shutil.which("nginx") or shutil.which("/usr/sbin/nginx")
    if program is None:
        reason = "nginx is not installed: apt-get install nginx-light"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    return program


@contextmanager
def nginx(http: str, files: dict[str, str] | None = None) -> Generator[str]:
    """Start nginx with these lines in its ``http`` block; yield the address of its first server.

    In the lines, ``PORT`` becomes a free port of the loopback, which one ``listen`` has to name, and ``FOLDER`` the
    folder of ``files``, such as certificates.
    """
    program = find_nginx()
    port = free_port()
    folder = Path(tempfile.mkdtemp(prefix="aguila-nginx-"))
    for name, text in (files or {}).items():
        (folder / name).write_text(text)
    config = folder / "nginx.conf"
    lines = http.replace("PORT", f"127.0.0.1:{port}").replace("FOLDER", str(folder))
    config.write_text(_CONFIG.format(folder=folder, http=lines))
    if _USER is not None:
        user = pwd.getpwnam(_USER)
        for path in (folder, *folder.iterdir()):
            os.chown(path, user.pw_uid, user.pw_gid)
    log = folder / "log"
    command = [program, "-c", str(config), "-e", "stderr", "-p", str(folder)]
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, cwd="/", user=_USER)

    def is_up() -> bool:
        assert process.poll() is None, log.read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)


def proxy(upstream: str, lines: str = "", path: str = "/") -> str:
    """Return an ``http`` block that passes all requests below a path on to a server.

    ``upstream`` is its URL. ``lines`` are added to the location.
    """
    return f"""
    server {{
        listen PORT;
        location {path} {{
            proxy_pass {upstream};
            {lines}
        }}
    }}
    """
