"""Check the way to a server: what proxies do to its requests and streams. No agent runs."""

from __future__ import annotations

import ssl
import time
from collections.abc import Iterator, Mapping
from http.client import HTTPException, HTTPResponse
from typing import Final
from urllib.parse import urlsplit

import msgspec

from aguila.cli.doctor.checks import Check
from aguila.cli.doctor.connection import MAX_ERROR, PATIENCE, Connection
from aguila.codec.json.bounded_floats import decode_json
from aguila.codec.sse import Frame, SSEParser
from aguila.errors import DecodeError
from aguila.server.http.openapi.documents import ErrorDocument, Problem
from aguila.server.http.probe import Probe

_FOREIGN: Final = "https://doctor.invalid"
"""The origin of a page that no server lists, unless it lists all."""
_MAX_SILENCE: Final = 3600.0
"""Seconds for which a silent stream is followed at most."""
_MAX_SKEW: Final = 5.0
"""Seconds by which clocks may differ."""
_FAILURES: Final = (OSError, HTTPException)


class _Failed(Exception):
    """A finding after which nothing else can be checked."""

    def __init__(self, text: str, fix: str, name: str = "server") -> None:
        self.check = Check(name=name, text=text, fix=fix)


class _ProbeEvent(msgspec.Struct):
    value: Probe


class _ProbeStream:
    """A response to ``GET /probe``: its events, with the times of their arrival on the monotonic clock."""

    def __init__(self, response: HTTPResponse, *, silence: float = 0.0) -> None:
        self._response = response
        self._parser = SSEParser()
        self._frames: list[Frame] = []
        self.opened = self.arrived = time.monotonic()
        self._until = self.opened + PATIENCE + silence

    def next(self) -> Probe | None:
        """Return the next event; None if the stream has ended or broken off, or sends something else for too long."""
        while not self._frames:
            if self.arrived > self._until:
                return None
            try:
                data = self._response.read1(1 << 16)
            except _FAILURES:
                data = b""
            self.arrived = time.monotonic()
            if not data:
                return None
            self._frames += self._parser.feed(data)
        return decode_json(self._frames.pop(0).data, _ProbeEvent).value


def check_way(server: Connection, origin: str | None) -> Iterator[Check]:
    """Check the way to a server. ``origin`` is that of pages that are to use it.

    The last check takes as long as a stream may be silent, 15 seconds by default.
    """
    try:
        began = time.time()
        seen = _look(server, origin or _FOREIGN)
        yield Check(name="server", text=f"{server.url} answers")
        yield _check_clock(seen, began, time.time())
        yield from _check_address(server, seen)
        yield _check_trust(seen)
        yield _check_compression(server)
        yield _check_cors(server, seen, origin)
        yield _check_body(server, seen)
        yield _check_errors(server)
        if server.scheme == "https":
            yield _check_http2(server)
        yield from _check_silence(server, seen)
    except _Failed as failed:
        yield failed.check
    except _FAILURES as error:  # first: a certificate that is refused is a ValueError, too
        yield _explain_failure(server, error)
    except (DecodeError, msgspec.DecodeError, ValueError) as error:  # ValueError: the URL that it names is none
        fix = "use the same version of Aguila here and there, and look for what changes responses on the way"
        yield Check(name="server", text=f"{server.url}/probe sent something else than expected: {error}", fix=fix)


def _open(
    server: Connection, headers: Mapping[str, str] | None = None, *, path: str = "/probe", silence: float = 0.0
) -> HTTPResponse:
    """Open a probe, which is silent for so many seconds. Raises ``_Failed`` if the answer is not one."""
    wanted = {"Accept": "text/event-stream", **(headers or {})}
    response = server.request("GET", path, wanted, timeout=PATIENCE + silence)
    if response.status == 200 and (response.getheader("content-type") or "").startswith("text/event-stream"):
        return response
    with response:
        raise _explain_refusal(server, response)


def _look(server: Connection, origin: str) -> Probe:
    """Return how a request from a page of this origin arrives. Raises ``_Failed``."""
    with _open(server, {"Origin": origin}) as response:
        seen = _ProbeStream(response).next()
    if seen is None:
        raise _Failed(f"{server.url}/probe was cut before its first event", "look into the log of the proxy")
    return seen


# A server that is not reached


def _explain_failure(server: Connection, error: Exception) -> Check:
    text = f"cannot reach {server.url}: {error or type(error).__name__}"
    if isinstance(error, ssl.SSLCertVerificationError):
        fix = "renew the certificate for this name, or let SSL_CERT_FILE name the authority that signed it"
        return Check(name="tls", text=text, fix=fix)
    fix = "start the server or the proxy, and check host and port of the URL, name service and firewall"
    return Check(name="server", text=text, fix=fix)


def _explain_refusal(server: Connection, response: HTTPResponse) -> _Failed:
    """Explain a response that is not a probe: an error of the server, or what a proxy sent instead."""
    status, problem = response.status, _read_problem(response.read(MAX_ERROR))
    said = f"{server.url}/probe was answered with {status}"
    if 300 <= status < 400:
        fix = "use the URL that it redirects to: clients do not follow with a POST"
        return _Failed(f"{said}, redirected to {response.getheader('location')}", fix)
    if problem is None and status in (502, 503, 504):
        fix = "start the server, and check the address in proxy_pass (nginx)"
        return _Failed(f"{said} by a proxy that does not reach the server", fix)
    if problem is None:
        fix = "check the URL, and which paths the proxy passes on; earlier versions of the server have no probe"
        return _Failed(f"{said}, which is no probe of Aguila", fix)
    said += f" {problem.code}: {problem.message}"
    if problem.code == "foreign_host":
        has_arrived = f"'{server.host}'" in problem.message
        return _Failed(said, f"aguila serve --allowed-host {server.name}" if has_arrived else _FIX_HOST, "host")
    if problem.code == "not_found" and server.path:
        return _Failed(f"{said}; the server got the path {server.path}", _fix_prefix(server), "prefix")
    if status in (401, 403):
        return _Failed(said, "give credentials: -H 'Authorization: Bearer ...'")
    return _Failed(said, f"docs/errors.md explains {problem.code}")


def _read_problem(body: bytes) -> Problem | None:
    """Return an error of the server; None if the body is none."""
    try:
        return decode_json(body, ErrorDocument).error
    except (msgspec.DecodeError, UnicodeError):
        return None


# How requests arrive


def _check_clock(seen: Probe, began: float, ended: float) -> Check:
    """Compare the clocks. The server read its clock after the request was sent, and before the answer arrived."""
    behind, ahead = began - seen.time, seen.time - ended
    if max(behind, ahead) <= _MAX_SKEW:
        return Check(name="clock", text="the clocks of the server and of this machine agree")
    text = f"the clock of the server is {max(behind, ahead):.0f} s {'behind' if behind > 0 else 'ahead of'} that here"
    fix = "timedatectl set-ntp true, on the machine whose clock is wrong: tokens expire by it, threads show its time"
    return Check(name="clock", text=text, fix=fix)


def _check_address(server: Connection, seen: Probe) -> Iterator[Check]:
    """Compare the URL with that at which the server was reached."""
    arrived = urlsplit(seen.url)
    text = f"the server was reached at {seen.url}"
    fix: str | None = None
    if arrived.scheme != server.scheme:
        fix = "nginx: proxy_set_header X-Forwarded-Proto $scheme; and trust the proxy with --forwarded-allow-ips"
    yield Check(name="scheme", text=f"{text}: links to files have this scheme" if fix else text, fix=fix)
    is_host = arrived.netloc.lower() == server.host
    text = f"the host arrives as {arrived.netloc}"
    if not is_host:
        text += f", not as {server.host}: POSTs of pages of this host are refused (403 foreign_origin)"
    yield Check(name="host", text=text, fix=None if is_host else _FIX_HOST)
    if server.path or arrived.path:
        is_path = arrived.path == server.path
        text = f"the server knows that it is at {arrived.path or '/'}"
        text = text if is_path else f"the server does not know that it is at {server.path}: links to files lack it"
        yield Check(name="prefix", text=text, fix=None if is_path else _fix_prefix(server))


_FIX_HOST: Final = "nginx: proxy_set_header Host $http_host;"


def _fix_prefix(server: Connection) -> str:
    path = server.path
    return (
        f"mount the App at {path} (App.mount_on), and write proxy_pass http://server; without a slash (nginx); "
        f"or remove the path, location {path}/ {{ proxy_pass http://server/; }}, "
        f"and start uvicorn with --root-path {path}"
    )


def _check_trust(seen: Probe) -> Check:
    if seen.untrusted_proxy is None:
        return Check(name="addresses", text="the server trusts every proxy that sends X-Forwarded-For")
    address = seen.untrusted_proxy or "a Unix socket"
    text = f"X-Forwarded-For of {address} is ignored: all visitors behind it share the limits of one"
    return Check(name="addresses", text=text, fix=f"aguila serve --forwarded-allow-ips {seen.untrusted_proxy or '*'}")


# What becomes of requests and responses


def _check_compression(server: Connection) -> Check:
    with _open(server, {"Accept-Encoding": "gzip, deflate, br, zstd"}) as response:
        encoding = response.getheader("content-encoding") or "identity"
    if encoding == "identity":
        return Check(name="compression", text="streams are not compressed")
    text = f"streams are compressed ({encoding}): events wait until a block is full"
    fix = "nginx: remove text/event-stream from gzip_types, and proxy_hide_header Content-Encoding"
    return Check(name="compression", text=text, fix=fix)


def _check_cors(server: Connection, seen: Probe, origin: str | None) -> Check:
    """Compare what the server allows to pages of an origin with what a browser would see."""
    page = origin or _FOREIGN
    with _open(server, {"Origin": page}) as response:
        allowed = response.headers.get_all("access-control-allow-origin") or []
    shown = ", ".join(allowed)
    if not seen.allows_origin:
        if allowed:
            text = f"a proxy allows pages of {shown}, and the server refuses their POSTs (403 foreign_origin)"
            fix = "nginx: remove add_header Access-Control-*, and name the origin: aguila serve --cors-origin ORIGIN"
            return Check(name="cors", text=text, fix=fix)
        if origin is None:
            return Check(name="cors", text="pages of other origins are not allowed; --origin ORIGIN checks one")
        if origin == f"{server.scheme}://{server.host}":
            return Check(name="cors", text=f"{origin} is the origin of the server itself")
        text = f"the server does not allow pages of {origin}"
        return Check(name="cors", text=text, fix=f"aguila serve --cors-origin {origin}")
    if not allowed:
        text = f"the server allows pages of {page}, and a proxy removes Access-Control-Allow-Origin"
        return Check(name="cors", text=text, fix="nginx: remove proxy_hide_header Access-Control-Allow-Origin")
    if allowed != [page]:
        text = f"Access-Control-Allow-Origin is {shown!r}, and browsers accept exactly one: {page}"
        return Check(name="cors", text=text, fix="nginx: remove add_header Access-Control-*; the server sends them")
    asked = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "content-type"}
    with server.request("OPTIONS", "/probe", {"Origin": page, **asked}) as response:
        preflight = response.status, response.headers.get_all("access-control-allow-origin")
    if preflight != (204, [page]):
        text = f"the preflight of a page of {page} was answered with {preflight[0]}"
        return Check(name="cors", text=text, fix="let OPTIONS pass to the server: it answers preflights")
    return Check(name="cors", text=f"pages of {page} are allowed")


def _check_body(server: Connection, seen: Probe) -> Check:
    megabytes = -(-seen.max_body // (1 << 20))
    status, body = server.announce("/files", seen.max_body)
    if status == 413 and _read_problem(body) is None:
        text = f"a proxy refuses a body of {megabytes} MiB, which the server accepts"
        return Check(name="body", text=text, fix=f"nginx: client_max_body_size {megabytes * 5 // 4}m;")
    return Check(name="body", text=f"a body of {megabytes} MiB is not refused on the way")


def _check_errors(server: Connection) -> Check:
    with server.request("GET", "/probe/missing") as response:
        status, problem = response.status, _read_problem(response.read(MAX_ERROR))
    if problem is not None:
        return Check(name="errors", text="errors of the server arrive as JSON")
    text = f"an error of the server was replaced by another document ({status}): clients do not see its code"
    return Check(name="errors", text=text, fix="nginx: proxy_intercept_errors off;")


def _check_http2(server: Connection) -> Check:
    if server.negotiate() == "h2":
        return Check(name="http2", text="browsers use HTTP/2")
    text = "browsers use HTTP/1.1, with at most six connections: a seventh tab that follows a run waits"
    return Check(name="http2", text=text, fix="nginx: listen 443 ssl http2;")


def _check_silence(server: Connection, seen: Probe) -> Iterator[Check]:
    """Follow a stream that is silent between two events, until the server sends a heartbeat."""
    silence = min(max(0.0, seen.heartbeat), _MAX_SILENCE)
    with _open(server, path="/probe?silence=true", silence=silence) as response:
        stream = _ProbeStream(response, silence=silence)
        first = stream.next()
        first_arrived = stream.arrived
        second = None if first is None else stream.next()
    if first is None or second is None:
        seconds = stream.arrived - stream.opened
        text = f"a silent stream was cut after {seconds:.1f} s; the server sends a heartbeat every {seen.heartbeat:g} s"
        fix = f"nginx: proxy_read_timeout {max(60, 4 * seen.heartbeat):g}s;"
        yield Check(name="idle", text=text, fix=fix)
        return
    yield Check(name="idle", text=f"a stream may be silent for {seen.heartbeat:g} s, until the heartbeat of the server")
    apart, sent = stream.arrived - first_arrived, second.time - first.time
    if apart < sent / 4:
        text = f"an event and one that the server sent {sent:.1f} s later arrived {apart:.1f} s apart: a proxy buffers"
        fix = (
            "nginx: proxy_buffering off; in each nginx but the last, which hides X-Accel-Buffering from those before it"
        )
        yield Check(name="buffering", text=text, fix=fix)
        return
    yield Check(name="buffering", text=f"events arrive as they are sent: {sent:.1f} s apart")
