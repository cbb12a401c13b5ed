"""``aguila doctor URL``: what a real nginx does to requests and streams, case by case."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from nginx import nginx, proxy
from ports import free_port
from serving import Server, serving
from typer.testing import CliRunner

from aguila import App
from aguila.cli.commands import commands
from aguila.server import Limits
from aguila.server.http import probe

PAGE = "https://page.example"
HEARTBEAT = 1.0

GOOD = """
proxy_set_header Host $http_host;
proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
proxy_set_header X-Forwarded-Proto $scheme;
client_max_body_size 3m;
gzip on;
gzip_types *;
gzip_proxied any;
gzip_min_length 1;
"""


async def agent(run: Any) -> Any:
    raise AssertionError("the agent was run")


def make_app(**options: Any) -> App:
    limits = Limits(body=2 << 20, upload=3 << 20)
    return App(
        agent, **{"store": ":memory:", "heartbeat": HEARTBEAT, "limits": limits, "cors_origins": [PAGE], **options}
    )


def doctor(url: str, *words: str) -> tuple[int, dict[str, str]]:
    """Run the command; return its exit status, and the fixes by the name of the check."""
    done = CliRunner().invoke(commands, ["doctor", url, "--store", ":memory:", "--json", *words])
    checks = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, {check["name"]: check["fix"] for check in checks if not check["ok"]}


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with serving(make_app()) as server:
        yield server


class Case(NamedTuple):
    """A directive of ``GOOD`` that is missing, lines that are added, the check that finds it, and a part of the fix."""

    without: str | None
    lines: str
    check: str
    fix: str


CASES = {
    "streams are compressed": Case(None, "proxy_hide_header Content-Encoding;", "compression", "gzip_types"),
    "the host is lost": Case("proxy_set_header Host", "", "host", "proxy_set_header Host $http_host;"),
    "the port is lost": Case("proxy_set_header Host", "proxy_set_header Host $host;", "host", "$http_host;"),
    "bodies are refused": Case("client_max_body_size", "", "body", "client_max_body_size 3m;"),
    "a CORS header is sent twice": Case(
        None, "add_header Access-Control-Allow-Origin $http_origin;", "cors", "remove add_header"
    ),
    "a CORS header is removed": Case(
        None, "proxy_hide_header Access-Control-Allow-Origin;", "cors", "remove proxy_hide_header"
    ),
    "preflights do not arrive": Case(
        None, "if ($request_method = OPTIONS) { return 405; }", "cors", "let OPTIONS pass"
    ),
    "errors are replaced": Case(
        None, "proxy_intercept_errors on; error_page 404 /50x.html;", "errors", "proxy_intercept_errors off;"
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_misconfiguration_of_nginx_is_found_with_its_fix(name: str, server: Server) -> None:
    case = CASES[name]
    kept = [line for line in GOOD.splitlines() if case.without is None or not line.startswith(case.without)]
    with nginx(proxy(server.url, "\n".join([*kept, case.lines]))) as url:
        assert_finds(url, case.check, case.fix)


def assert_finds(url: str, check: str, fix: str) -> None:
    status, fixes = doctor(url, "--origin", PAGE)
    assert (status, list(fixes)) == (1, [check])
    assert fix in fixes[check]


def test_a_proxy_that_cuts_silent_streams() -> None:
    lines = f"{GOOD} proxy_read_timeout 1s;"
    with serving(make_app(heartbeat=4.0)) as server, nginx(proxy(server.url, lines)) as url:
        assert_finds(url, "idle", "proxy_read_timeout 60s;")


def test_two_proxies_of_which_the_first_buffers(server: Server) -> None:
    inner = f"server {{ listen unix:FOLDER/inner; location / {{ proxy_pass {server.url}; {GOOD} }} }}"
    with nginx(inner + proxy("http://unix:FOLDER/inner", GOOD)) as url:
        assert_finds(url, "buffering", "proxy_buffering off;")


def test_a_path_is_passed_on_that_the_server_does_not_have(server: Server) -> None:
    """Or is removed, and the server does not know of it."""
    with nginx(proxy(server.url, GOOD)) as url:
        assert_finds(f"{url}/agent", "prefix", "uvicorn with --root-path /agent")
    with nginx(proxy(f"{server.url}/", GOOD, path="/agent/")) as url:
        assert_finds(f"{url}/agent", "prefix", "mount the App at /agent")


def test_a_server_that_does_not_trust_the_proxy() -> None:
    lines = GOOD.replace("$proxy_add_x_forwarded_for", "192.0.2.7")  # a visitor from elsewhere
    with serving(make_app(), forwarded_allow_ips="192.0.2.1") as server, nginx(proxy(server.url, lines)) as url:
        assert_finds(url, "addresses", "--forwarded-allow-ips 127.0.0.1")


def test_a_wrong_clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "time", SlowClock)
    assert_finds(server.url, "clock", "timedatectl set-ntp true")


class SlowClock:
    @staticmethod
    def time() -> float:
        return time.time() - 300.0


def test_all_is_well_behind_nginx_and_without_it(server: Server) -> None:
    with nginx(proxy(server.url, GOOD)) as url:
        done = CliRunner().invoke(commands, ["doctor", url, "--store", ":memory:", "--origin", PAGE])
    assert (done.exit_code, done.stdout.endswith("\nall well\n")) == (0, True), done.output
    assert doctor(server.url) == (0, {})


@pytest.mark.parametrize(
    ("options", "words", "check", "fix"),
    [
        ({}, ["--origin", "https://other.example"], "cors", "aguila serve --cors-origin https://other.example"),
        ({"allowed_hosts": ["agents.example"]}, [], "host", "aguila serve --allowed-host 127.0.0.1"),
        ({"authenticate": lambda request: None}, [], "server", "-H 'Authorization: Bearer ...'"),
    ],
)
def test_findings_of_the_server_itself(options: dict[str, Any], words: list[str], check: str, fix: str) -> None:
    with serving(make_app(**{"heartbeat": 0.01, **options})) as server:
        status, fixes = doctor(server.url, *words)
    assert (status, list(fixes)) == (1, [check])
    assert fix in fixes[check]


def test_credentials_are_sent() -> None:
    def authenticate(request: Any) -> str | None:
        return "ada" if request.headers.get("authorization") == "Bearer ada" else None

    with serving(make_app(authenticate=authenticate, heartbeat=0.01)) as server:
        assert doctor(server.url, "-H", "Authorization: Bearer ada") == (0, {})


def test_addresses_without_a_server_of_ours(server: Server) -> None:
    locations = "location /old { return 301 https://new.example/; } location /page { return 200 welcome; }"
    with nginx(f"server {{ listen PORT; {locations} }}") as url:
        assert_finds(url, "server", "check the URL")
        assert_finds(f"{url}/page", "server", "check the URL")
        assert_finds(f"{url}/old", "server", "use the URL that it redirects to")
    assert_finds(url, "server", "start the server")  # nothing listens there any more
    with nginx(proxy(f"http://127.0.0.1:{free_port()}")) as url:
        assert_finds(url, "server", "proxy_pass")
    assert doctor("agents.example")[0] == 2


@pytest.fixture(scope="module")
def certificate() -> dict[str, str]:
    """A certificate of 127.0.0.1 that signs itself, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.now(UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(hours=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(IPv4Address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    form = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    return {
        "certificate.pem": signed.public_bytes(serialization.Encoding.PEM).decode(),
        "key.pem": key.private_bytes(serialization.Encoding.PEM, *form).decode(),
    }


def test_https(server: Server, certificate: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tls = "ssl_certificate FOLDER/certificate.pem; ssl_certificate_key FOLDER/key.pem;\n"
    plain = GOOD.replace("X-Forwarded-Proto $scheme", "X-Forwarded-Proto http")
    with nginx(tls + proxy(server.url, plain).replace("listen PORT", "listen PORT ssl"), certificate) as url:
        url = url.replace("http:", "https:")
        assert_finds(url, "tls", "SSL_CERT_FILE")
        (tmp_path / "authorities.pem").write_text(certificate["certificate.pem"])
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "authorities.pem"))
        status, fixes = doctor(url)
        assert (status, list(fixes)) == (1, ["scheme", "http2"])
    assert "X-Forwarded-Proto $scheme" in fixes["scheme"]
    assert "listen 443 ssl http2;" in fixes["http2"]
    with nginx(tls + proxy(server.url, GOOD).replace("listen PORT", "listen PORT ssl http2"), certificate) as url:
        assert doctor(url.replace("http:", "https:")) == (0, {})
