"""A PostgreSQL server for tests: Debian's programs, a temporary folder, a loopback port.

``AGUILA_POSTGRES`` names an existing server instead. One server is started per test run, when it is first needed; the
workers of pytest-xdist share it. Each test has a schema of its own.
"""

from __future__ import annotations

import fcntl
import json
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from ports import free_port
from waiting import wait_until

FOLDER = "AGUILA_POSTGRES_FOLDER"
"""The environment variable with the folder that the processes of one test run share."""

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "200",
    "shared_buffers": "64MB",
    "fsync": "off",  # a test may kill the server, but not the machine
    "max_wal_senders": "4",
    "wal_level": "replica",
    "log_min_messages": "fatal",
}


_USER = "postgres" if os.getuid() == 0 else None
"""The user that runs the server, which refuses to run as root."""


def find_programs() -> Path | None:
    """Return the folder of the newest installed PostgreSQL of version 15 or later."""
    found = [path for path in Path("/usr/lib/postgresql").glob("*/bin") if int(path.parent.name) >= 15]
    if found:
        return max(found, key=lambda path: int(path.parent.name))
    on_path = shutil.which("initdb")
    return None if on_path is None else Path(on_path).parent


class Cluster:
    """A server with its data in ``folder``, which it owns."""

    def __init__(self, folder: Path, **settings: str) -> None:
        programs = find_programs()
        assert programs is not None, "PostgreSQL is not installed"
        self._programs = programs
        self.folder = folder
        self.data = folder / "data"
        self.port = free_port()
        self._settings = {**_SETTINGS, "port": str(self.port), **settings}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def dsn(self) -> str:
        return f"postgresql://aguila@127.0.0.1:{self.port}/postgres"

    def create(self) -> None:
        """Make an empty database."""
        self._own_folder()
        self._run(
            "initdb", "-D", str(self.data), "-U", "aguila", "--auth=trust", "--no-sync", "--encoding=UTF8", "--locale=C"
        )
        self._configure()

    def create_standby(self, primary: Cluster) -> None:
        """Copy a running server; ``start`` follows it."""
        self._own_folder()
        self._run("pg_basebackup", "-D", str(self.data), "-d", primary.dsn, "-R", "--no-sync", "-c", "fast")
        (self.data / "aguila.conf").unlink()
        self._configure(write_include=False)
        name = f"primary_conninfo = 'host=127.0.0.1 port={primary.port} user=aguila application_name=standby'\n"
        with (self.data / "postgresql.auto.conf").open("a") as file:
            file.write(name)

    def _own_folder(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        if os.getuid() == 0:
            user = pwd.getpwnam("postgres")
            os.chown(self.folder, user.pw_uid, user.pw_gid)

    def _configure(self, write_include: bool = True) -> None:
        lines = [f"{name} = '{value}'" for name, value in self._settings.items()]
        (self.data / "aguila.conf").write_text("\n".join(lines) + "\n")
        (self.data / "aguila.conf").chmod(0o644)
        if write_include:
            with (self.data / "postgresql.conf").open("a") as file:
                file.write("include 'aguila.conf'\n")

    def start(self) -> None:
        """Start the server and wait until it accepts connections."""
        command = [str(self._programs / "postgres"), "-D", str(self.data)]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, cwd="/", start_new_session=True, user=_USER, group=_USER
            )
        wait_until(self._is_ready)

    def _is_ready(self) -> bool:
        assert self._process is not None
        assert self._process.poll() is None, (self.folder / "log").read_text()[-2000:]
        command = [str(self._programs / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        return subprocess.run(command, check=False).returncode == 0

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def stop(self, how: signal.Signals = signal.SIGQUIT) -> None:
        """Stop the server: at once (as a crash, SIGQUIT), or with SIGINT after its sessions are ended."""
        if self._process is not None:
            self._process.send_signal(how)
            self._process.wait()
            self._process = None

    def promote(self) -> None:
        """Make a standby the primary, and wait until it is."""
        self._run("pg_ctl", "promote", "-D", str(self.data), "-w")

    def _run(self, program: str, *arguments: str) -> None:
        result = subprocess.run(
            [str(self._programs / program), *arguments],
            check=False,
            capture_output=True,
            cwd="/",
            user=_USER,
            group=_USER,
        )
        assert result.returncode == 0, result.stderr.decode()


def make_folder() -> Path:
    """Make a temporary folder that the user of the server can enter."""
    folder = Path(tempfile.mkdtemp(prefix="aguila-postgres-"))
    folder.chmod(0o755)
    return folder


_started: list[Cluster] = []


def shared_dsn() -> str:
    """Return the DSN of the server of this test run; start it if it is not running."""
    given = os.environ.get("AGUILA_POSTGRES")
    if given is not None:
        return given
    folder = Path(os.environ[FOLDER])
    with _locked(folder / "lock"):
        state = folder / "state.json"
        if not state.exists():
            cluster = Cluster(folder / "cluster")
            cluster.create()
            cluster.start()
            _started.append(cluster)  # its process must not be collected before the end of the tests
            state.write_text(json.dumps({"dsn": cluster.dsn, "pid": cluster.pid}))
        return json.loads(state.read_text())["dsn"]


def stop_shared() -> None:
    """Stop the server of this test run and remove its folder."""
    folder = Path(os.environ.pop(FOLDER))
    state = folder / "state.json"
    if state.exists():
        os.kill(json.loads(state.read_text())["pid"], signal.SIGQUIT)
    shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _locked(path: Path) -> Generator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield
