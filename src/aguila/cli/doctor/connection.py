"""Requests of ``aguila doctor``: each on a connection of its own, with the response as it arrives, undecoded."""

from __future__ import annotations

import http.client
import re
import socket
import ssl
from collections.abc import Mapping
from contextlib import closing
from http.client import HTTPResponse
from typing import Final
from urllib.parse import urlsplit

PATIENCE: Final = 30.0
"""Seconds for a connection, and for an answer."""
_DEFAULT_PORTS: Final = {"http": ":80", "https": ":443"}
_STATUS: Final = re.compile(rb"HTTP/1\.[01] (\d{3})\b")
MAX_ERROR: Final = 64 * 1024
"""Bytes of an error that are read."""


class Connection:
    """Sends requests to a server, each with ``headers``, such as credentials. Raises ``ValueError`` for a bad URL."""

    def __init__(self, url: str, headers: Mapping[str, str]) -> None:
        parts = urlsplit(url)
        if parts.scheme not in _DEFAULT_PORTS or not parts.hostname:
            raise ValueError(f"{url} is not a URL of a server; write it as https://host/path")
        self.scheme = parts.scheme
        self.host = parts.netloc.rpartition("@")[2].lower().removesuffix(_DEFAULT_PORTS[parts.scheme])
        """As a browser writes it into the header: without the port that the scheme implies."""
        self.path = parts.path.rstrip("/")
        self.name = parts.hostname
        self._port = parts.port
        self._headers = headers

    @property
    def url(self) -> str:
        """The URL without a trailing slash."""
        return f"{self.scheme}://{self.host}{self.path}"

    def request(
        self, method: str, path: str, headers: Mapping[str, str] | None = None, *, timeout: float = PATIENCE
    ) -> HTTPResponse:
        """Send a request to a path below the URL; return the head of its response. Its body can be read.

        Raises ``OSError``, ``HTTPException``.
        """
        connection = self._connect(timeout)
        all_headers = {**self._headers, **(headers or {}), "Connection": "close"}
        connection.request(method, self.path + path, headers=all_headers)
        return connection.getresponse()

    def announce(self, path: str, size: int) -> tuple[int, bytes]:
        """Announce a body of this size, and do not send it; return the status and the body of the response.

        A server or proxy that accepts the size answers with 100. Raises ``OSError``, ``HTTPException``.
        """
        announced = {"Content-Type": "application/octet-stream", "Content-Length": str(size), "Expect": "100-continue"}
        with closing(self._connect(PATIENCE)) as connection:
            connection.putrequest("POST", self.path + path)
            for name, value in {**self._headers, **announced, "Connection": "close"}.items():
                connection.putheader(name, value)
            connection.endheaders()
            with connection.sock.makefile("rb") as response:
                line = response.readline(1000)
                found = _STATUS.match(line)
                if found is None:
                    raise http.client.BadStatusLine(repr(line))
                length = http.client.parse_headers(response).get("content-length", "")
                size = int(length) if length.isdecimal() and len(length) < 10 else 0
                return int(found[1]), response.read(min(size, MAX_ERROR))

    def negotiate(self) -> str | None:
        """Return the protocol that a TLS server chooses for a browser, such as ``h2``. Raises ``OSError``."""
        context = ssl.create_default_context()
        context.set_alpn_protocols(["h2", "http/1.1"])
        with (
            socket.create_connection((self.name, self._port or 443), PATIENCE) as plain,
            context.wrap_socket(plain, server_hostname=self.name) as secure,
        ):
            return secure.selected_alpn_protocol()

    def _connect(self, timeout: float) -> http.client.HTTPConnection:
        kind = http.client.HTTPSConnection if self.scheme == "https" else http.client.HTTPConnection
        return kind(self.name, self._port, timeout=timeout)
