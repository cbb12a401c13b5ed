"""PgBouncer for tests, in front of a PostgreSQL server of a test."""

from __future__ import annotations

import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

from ports import free_port
from waiting import wait_until

from stores.postgres_cluster import make_folder

_USER = "postgres" if os.getuid() == 0 else None
"""The user that runs PgBouncer, which refuses to run as root."""


def find_pgbouncer() -> str | None:
    """Return the path of PgBouncer; None if it is not installed."""
    return shutil.which("pgbouncer") or shutil.which("/usr/sbin/pgbouncer")


@contextmanager
def pgbouncer(dsn: str, mode: str = "transaction", servers: int = 3) -> Iterator[str]:
    """Start PgBouncer with this many connections to a server; yield the DSN of the same database through it."""
    program = find_pgbouncer()
    assert program is not None
    target = urlsplit(dsn)
    port = free_port()
    folder = make_folder()
    settings = folder / "pgbouncer.ini"
    settings.write_text(
        f"""
        [databases]
        postgres = host={target.hostname} port={target.port} dbname=postgres user={target.username}
        [pgbouncer]
        listen_addr = 127.0.0.1
        listen_port = {port}
        unix_socket_dir =
        auth_type = any
        pool_mode = {mode}
        default_pool_size = {servers}
        """.replace("\n        ", "\n")
    )
    if _USER is not None:
        os.chown(folder, pwd.getpwnam(_USER).pw_uid, -1)
    with (folder / "log").open("wb") as log:
        process = subprocess.Popen([program, str(settings)], stdout=log, stderr=log, cwd="/", user=_USER, group=_USER)

    def is_up() -> bool:
        assert process.poll() is None, (folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        wait_until(is_up)
        yield f"postgresql://{target.username}@127.0.0.1:{port}/postgres"
    finally:
        process.kill()
        process.wait()
        shutil.rmtree(folder, ignore_errors=True)
