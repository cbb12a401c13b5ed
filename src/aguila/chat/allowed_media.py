"""Which references to media an app or an agent passes on. Addresses are read, never looked up or fetched.

A reference to an address inside a network is refused unless its host is listed. An address has many spellings:
``127.1``, ``0x7f000001`` and ``[::ffff:7f00:1]`` are all this machine. All spellings that browsers and libraries accept
are read here; a URL that two of them could read differently is refused.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from ipaddress import AddressValueError, IPv4Address, IPv6Address, IPv6Network
from typing import Final
from urllib.parse import unquote

import msgspec

from aguila.protocol import FileSource, PartSource, UrlSource

OWN_PROVIDER: Final = "aguila"
"""The provider of our own uploads."""

_SCHEME: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*\Z")
_WITH_HOST: Final = frozenset({"http", "https", "ftp", "ftps", "ws", "wss"})
# Parsers disagree about these: some remove them, some read a backslash as a slash.
_AMBIGUOUS: Final = re.compile(r"[\x00-\x20\x7f-\xa0\\\u2028\u2029\ufeff]")
_DOTS: Final = str.maketrans({"\u3002": ".", "\uff0e": ".", "\uff61": "."})
# Invisible characters, which some parsers leave out.
_IGNORABLE: Final = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e\u2060-\u206f\u3164"
    "\ufe00-\ufe0f\uffa0\ufff0-\ufff8\U000e0000-\U000e0fff]"
)
_NUMBER: Final = re.compile(r"(?:0[xX][0-9A-Fa-f]*|[0-9]+)\Z")
_HOST: Final = re.compile(r"[^\x00-\x20#%/:<>?@\[\\\]^|\x7f]+\Z")
_LOCAL_NAMES: Final = ("localhost", "localdomain", "local", "internal", "intranet", "lan", "home.arpa")
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = IPv6Network("::/96")


class AllowedMedia(msgspec.Struct, frozen=True, kw_only=True):
    """Which references to media are passed on.

    ``schemes``: the schemes of URLs. ``hosts``: the hosts of URLs; ``"*"`` is every host but private, loopback and
    link-local addresses and local names, ``"*.example.com"`` every host below a domain. A private host is allowed only
    by its own name or address. ``providers``: the providers of files, besides our own uploads. Inline data is allowed.
    """

    schemes: Sequence[str] = ("data", "https")
    hosts: Sequence[str] = ("*",)
    providers: Sequence[str] = ()

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value: object = getattr(self, name)
            if isinstance(value, str):  # a string would be read as a list of letters
                raise ValueError(f"{name} is the string {value!r}; use a list: {name}=[{value!r}]")
        for host in self.hosts:
            if host != "*" and _read_host(_bracketed(host.removeprefix("*."))) is None:
                raise ValueError(f'hosts has {host!r}; use a name, an address, "*.example.com" or "*"')

    def find_problem(self, source: PartSource) -> str | None:
        """Return why the source of a part is not passed on, or None."""
        if isinstance(source, UrlSource):
            return self.find_url_problem(source.value)
        return self.find_provider_problem(source.provider) if isinstance(source, FileSource) else None

    def find_provider_problem(self, provider: str | None) -> str | None:
        """Return why a file of a provider is not passed on, or None. Uploads have no provider, or our own."""
        if provider in (None, OWN_PROVIDER) or provider in self.providers:
            return None
        return f"files of {provider!r} are not allowed; add the provider with AllowedMedia"

    def find_url_problem(self, url: str) -> str | None:
        """Return why a URL is not passed on, or None."""
        scheme, colon, rest = url.partition(":")
        if not colon or _SCHEME.match(scheme) is None:
            return "its URL has no scheme"
        scheme = scheme.lower()
        if scheme not in [one.lower() for one in self.schemes]:
            return f"URLs with {scheme}: are not allowed; add the scheme with AllowedMedia"
        if scheme not in _WITH_HOST:
            return None
        if _AMBIGUOUS.search(url) is not None:
            return "its URL has spaces, control characters or backslashes, which are read in different ways"
        if not rest.startswith("//"):
            return f"its URL does not begin with {scheme}://"
        authority = re.split(r"[/?#]", rest[2:], maxsplit=1)[0]
        if "@" in authority:
            return "its URL has a user name, which is read in different ways"
        host = _read_host(_without_port(authority))
        if host is None:
            return "the host of its URL is not valid"
        return None if self._allows(host) else f"the host {host} is not allowed; add it with AllowedMedia"

    def _allows(self, host: str) -> bool:
        is_private = _is_private(host)
        for one in self.hosts:
            if one == "*":
                if not is_private:
                    return True
            elif one.startswith("*."):
                if not is_private and host.endswith("." + str(_read_host(one[2:]))):
                    return True
            elif host == _read_host(_bracketed(one)):
                return True
        return False


DEFAULT_MEDIA: Final = AllowedMedia()
"""Inline data, our own uploads, and public addresses with https."""


def _bracketed(host: str) -> str:
    """Return a host as URLs have it: an IPv6 address in brackets."""
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _without_port(authority: str) -> str:
    if authority.startswith("["):
        address, bracket, port = authority.partition("]")
        return address + bracket if re.fullmatch("(:[0-9]*)?", port) else ""
    host, _, port = authority.partition(":")
    return host if port.isascii() and (port == "" or port.isdigit()) else ""


def _read_host(host: str) -> str | None:
    """Return a host in one spelling: a name in lower case, or an address; None if it is not valid."""
    if host.startswith("["):
        try:
            return str(IPv6Address(unquote(host[1:-1]).partition("%")[0])) if host.endswith("]") else None
        except AddressValueError:
            return None
    host = unicodedata.normalize("NFKC", unquote(host)).translate(_DOTS)
    host = host.lower().removesuffix(".")
    if _HOST.match(host) is None or _IGNORABLE.search(host) is not None or ".." in host or host.startswith("."):
        return None
    if _NUMBER.match(host.rpartition(".")[2]) is None:
        return host
    addresses = _read_ipv4(host)
    if not addresses:
        return None
    return next((one for one in addresses if _is_private(one)), addresses[0])


def _read_ipv4(host: str) -> list[str]:
    """Return the IPv4 addresses that a host of numbers may mean: a leading zero is octal for some parsers."""
    found: list[str] = []
    for is_octal in (True, False):
        numbers = [_read_number(part, is_octal=is_octal) for part in host.split(".")]
        if len(numbers) > 4:
            return []
        valid = [number for number in numbers if number is not None]
        *first, last = valid or [0]
        if len(valid) == len(numbers) and all(number < 256 for number in first) and last < 256 ** (5 - len(numbers)):
            value = sum(number << (24 - 8 * at) for at, number in enumerate(first)) + last
            found.append(str(IPv4Address(value)))
    return found


def _read_number(text: str, *, is_octal: bool) -> int | None:
    if _NUMBER.match(text) is None:
        return None
    if text[:2] in ("0x", "0X"):
        return int(text[2:] or "0", 16)
    if is_octal and len(text) > 1 and text.startswith("0"):
        return int(text, 8) if re.fullmatch("[0-7]+", text) else None
    return int(text[:20])


def _is_private(host: str) -> bool:
    """Return whether a host is in the network of a server: an address that is not public, or a local name."""
    try:
        return not _is_public_v6(IPv6Address(host)) if ":" in host else not _is_public_v4(IPv4Address(host))
    except AddressValueError:
        return "." not in host or any(host == name or host.endswith("." + name) for name in _LOCAL_NAMES)


def _is_public_v4(address: IPv4Address) -> bool:
    return address.is_global and not (address.is_multicast or address.is_reserved)


def _is_public_v6(address: IPv6Address) -> bool:
    """Return whether an address is public, and the IPv4 address in it, if there is one."""
    embedded = [address.ipv4_mapped, address.sixtofour, *(address.teredo or ())]
    if address in _COMPATIBLE or any(address in network for network in _NAT64):
        embedded.append(IPv4Address(int(address) & 0xFFFFFFFF))
    inner = [one for one in embedded if one is not None]
    if inner:
        return address not in _NAT64[1] and all(_is_public_v4(one) for one in inner)
    return address.is_global and not (address.is_multicast or address.is_reserved or address.is_site_local)
