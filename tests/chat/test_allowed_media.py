"""Which references to media are passed on: schemes, hosts in all their spellings, and providers."""

from __future__ import annotations

import socket
from typing import Any

import pytest

from aguila.chat.allowed_media import AllowedMedia
from aguila.protocol import DataSource, FileSource, UrlSource

DEFAULT = AllowedMedia()

PUBLIC = [
    "https://example.com/a.png",
    "HTTPS://EXAMPLE.COM/a.png",
    "https://example.com:8443/a.png?x=1#y",
    "https://example.com.",
    "https://example.com/http://127.0.0.1/",
    "https://example.com?@127.0.0.1",
    "https://example.com/@127.0.0.1",
    "https://bücher.example/a",
    "https://xn--bcher-kva.example/a",
    "https://93.184.215.14/a.png",
    "https://1572395790/a.png",
    "https://0x5d.0xb8.0xd70e/a.png",
    "https://[2606:2800:21f:cb07:6820:80da:af6b:8b2c]/a.png",
    "https://127.0.0.1.example.com/",
    "https://localhost.example.com/",
    "https://10.example.com/",
    "data:image/png;base64,AA==",
    "DATA:,x",
]

REFUSED = [
    # this machine, in IPv4
    "https://127.0.0.1/",
    "https://127.0.0.1:8080/a",
    "https://127.0.0.1./",
    "https://127.1/",
    "https://127.0.1/",
    "https://2130706433/",
    "https://0x7f000001/",
    "https://0x7F.1/",
    "https://0x7f.0x0.0x0.0x1/",
    "https://0177.0.0.1/",
    "https://017700000001/",
    "https://0000177.0.0.01/",
    "https://00000000127.0.0.1/",  # 87.0.0.1 for those that read octal
    "https://127.255.255.254/",
    "https://0/",
    "https://0.0.0.0/",
    "https://0x/",
    # private and link-local
    "https://10.0.0.5/",
    "https://10.5/",
    "https://167772165/",
    "https://012.0.0.5/",
    "https://010.0.0.5/",  # 8.0.0.5 for those that read octal
    "https://172.16.0.1/",
    "https://172.31.255.255/",
    "https://192.168.1.1/",
    "https://192.168.257/",
    "https://0xc0.0xa8.0x1.0x1/",
    "https://169.254.169.254/latest/meta-data",
    "https://2852039166/",
    "https://0251.0376.0251.0376/",
    "https://0xa9fea9fe/",
    "https://100.64.0.1/",
    "https://198.18.0.1/",
    "https://224.0.0.1/",
    "https://255.255.255.255/",
    # IPv6
    "https://[::1]/",
    "https://[0:0:0:0:0:0:0:1]:443/",
    "https://[::]/",
    "https://[::ffff:127.0.0.1]/",
    "https://[::ffff:7f00:1]/",
    "https://[::FFFF:10.0.0.1]/",
    "https://[::127.0.0.1]/",
    "https://[64:ff9b::7f00:1]/",
    "https://[64:ff9b:1::1]/",
    "https://[2002:7f00:1::]/",
    "https://[2001:0:7f00:1::]/",
    "https://[fe80::1]/",
    "https://[fe80::1%25eth0]/",
    "https://[fc00::1]/",
    "https://[fd12:3456:789a::1]/",
    "https://[fec0::1]/",
    "https://[ff02::1]/",
    # names
    "https://localhost/",
    "https://LOCALHOST:8000/",
    "https://localhost./",
    "https://a.localhost/",
    "https://localhost.localdomain/",
    "https://ip6-localhost/",
    "https://printer.local/",
    "https://metadata.google.internal/",
    "https://intranet/",
    # other characters for the same host
    "https://127。0。0。1/",
    "https://\uff11\uff12\uff17.0.0.1/",
    "https://①②⑦.0.0.1/",
    "https://ⓛocalhost/",
    "https://local\u00adhost/",
    "https://example\ufe0f.com/",
    "https://127.0.0\u200b.1/",
    "https://%31%32%37.0.0.1/",
    "https://%6cocalhost/",
    "https://0x7f。1/",
    # read differently by different parsers
    "https://example.com@127.0.0.1/",
    "https://127.0.0.1@example.com/",
    "https://user:secret@example.com/",
    "https://example.com\\@127.0.0.1/",
    "https:\\\\127.0.0.1/",
    "https:127.0.0.1/",
    "https:/127.0.0.1/",
    "https:///127.0.0.1/",
    "https://example.com\t.evil/",
    "https://127.0.0.1\n.example.com/",
    " https://example.com/",
    "ht\ntps://127.0.0.1/",
    "https://example.com:80:443/",
    "https://example.com:x/",
    "https://[::1",
    "https://[::1]x/",
    "https://[v1.fe80::1]/",
    "https://1.2.3.4.5/",
    "https://256.256.256.256/",
    "https://127.0.0.0x100/",
    "https://08.0.0.256/",
    "https://a..b/",
    "https://.example.com/",
    "https://",
    "https://?x",
    # other schemes
    "http://example.com/",
    "file:///etc/passwd",
    "ftp://example.com/",
    "gs://bucket/object",
    "gopher://127.0.0.1:6379/_",
    "javascript:alert(1)",
    "blob:https://example.com/1",
    "//example.com/a.png",
    "/files/1",
    "a.png",
    "",
]


@pytest.fixture(autouse=True)
def no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any, **options: Any) -> Any:
        raise AssertionError("a name was looked up")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    monkeypatch.setattr(socket, "gethostbyname", refuse)


@pytest.mark.parametrize("url", PUBLIC)
def test_a_public_address_is_passed_on(url: str) -> None:
    assert DEFAULT.find_problem(UrlSource(value=url)) is None


@pytest.mark.parametrize("url", REFUSED)
def test_what_is_private_or_ambiguous_is_not_passed_on(url: str) -> None:
    assert DEFAULT.find_problem(UrlSource(value=url)) is not None


def test_every_spelling_of_a_listed_host_is_passed_on() -> None:
    allowed = AllowedMedia(schemes=["http"], hosts=["127.0.0.1", "::1", "minio", "10.0.0.5"])
    for host in ("127.0.0.1", "127.1:9000", "2130706433", "[::1]", "[0::1]:80", "MinIO:9000", "10.5"):
        assert allowed.find_url_problem(f"http://{host}/a") is None, host
    for host in ("127.0.0.2", "localhost", "10.0.0.6", "example.com", "[::ffff:127.0.0.1]"):
        assert "add it with AllowedMedia" in str(allowed.find_url_problem(f"http://{host}/a")), host


def test_hosts_below_a_domain() -> None:
    allowed = AllowedMedia(hosts=["*.example.com", "Example.org"])
    assert allowed.find_url_problem("https://a.b.example.com/") is None
    assert allowed.find_url_problem("https://example.org/") is None
    for url in (
        "https://example.com/",
        "https://evilexample.com/",
        "https://a.example.org/",
        "https://example.com.evil/",
    ):
        assert allowed.find_url_problem(url) is not None, url


def test_a_scheme_without_a_network_host_is_allowed_by_its_name() -> None:
    assert AllowedMedia(schemes=["gs"]).find_url_problem("gs://bucket/object") is None
    assert "data:" in str(AllowedMedia(schemes=["https"]).find_url_problem("data:,x"))


def test_files_of_providers_are_listed_and_our_own_are_allowed() -> None:
    for provider in (None, "aguila"):
        assert DEFAULT.find_problem(FileSource(value="f", provider=provider)) is None
    assert "'openai'" in str(DEFAULT.find_problem(FileSource(value="f", provider="openai")))
    assert AllowedMedia(providers=["openai"]).find_problem(FileSource(value="f", provider="openai")) is None
    assert DEFAULT.find_problem(DataSource(value="AA==", mime_type="image/png")) is None


@pytest.mark.parametrize("options", [{"schemes": "https"}, {"hosts": "example.com"}, {"providers": "openai"}])
def test_a_string_is_not_a_list(options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="use a list"):
        AllowedMedia(**options)


def test_a_host_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="hosts has"):
        AllowedMedia(hosts=["https://example.com"])
