"""Check this machine: versions, extras, and the port that ``aguila serve`` would use."""

from __future__ import annotations

import http.client
import platform
import re
import sqlite3
from collections.abc import Iterator
from importlib.metadata import PackageNotFoundError, requires, version

from aguila import __version__
from aguila.cli.doctor.checks import Check
from aguila.cli.serve import CannotServe, listen
from aguila.protocol import PROTOCOL_VERSION

_EXTRA = re.compile(r"""\A(?!aguila\b)([\w.-]+).*;.*\bextra\s*==\s*["']([\w-]+)["']""")
"""A package that an extra requires, and the extra."""


def check_machine(port: int | None) -> Iterator[Check]:
    """Check versions and extras, and whether this port is free; None: no port."""
    python = f"{platform.python_implementation()} {platform.python_version()}"
    system = f"{platform.system()} {platform.machine()}"
    versions = f"aguila {__version__}, AG-UI {PROTOCOL_VERSION}, {python}, SQLite {sqlite3.sqlite_version}, {system}"
    yield Check(name="versions", text=versions)
    yield from _check_extras()
    if port is not None:
        yield _check_port(port)


def _check_extras() -> Iterator[Check]:
    """List the extras whose packages are installed, and the versions of these packages."""
    extras: dict[str, set[str]] = {}
    for line in requires("aguila") or ():
        if (found := _EXTRA.match(line)) is not None and found[2] != "all":
            extras.setdefault(found[2], set()).add(found[1])
    versions: dict[str, str | None] = {name: _version(name) for name in {"msgspec"}.union(*extras.values())}
    missing = [extra for extra, names in sorted(extras.items()) if any(versions[name] is None for name in names)]
    text = ", ".join(sorted(extras.keys() - {*missing}))
    if missing:
        text += f"; not installed: {', '.join(missing)} (pip install 'aguila[{missing[0]}]')"
    yield Check(name="extras", text=text)
    shown = [f"{name} {found}" for name, found in sorted(versions.items()) if found is not None]
    yield Check(name="packages", text=", ".join(shown))


def _version(package: str) -> str | None:
    """Return the version of an installed package."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _check_port(port: int) -> Check:
    """Find out whether ``aguila serve`` can listen on a port, or does so already."""
    address = f"127.0.0.1:{port}"
    try:
        listen("127.0.0.1", port).close()
    except CannotServe as error:
        if _answers_as_server(port):
            return Check(name="port", text=f"a server answers at http://{address}; to check it: aguila doctor URL")
        return Check(name="port", text=str(error), fix="aguila serve --port 0 takes a free port, and prints it")
    return Check(name="port", text=f"{address} is free")


def _answers_as_server(port: int) -> bool:
    """Return whether a server of Aguila listens on a port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
    try:
        connection.request("GET", "/healthz")
        return connection.getresponse().read(100) == b'{"status":"ok"}'
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()
