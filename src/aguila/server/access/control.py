"""Check a request before its handler is called."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from aguila.server.access.authentication import ANONYMOUS, Authenticate, identify
from aguila.server.access.cors import Origins
from aguila.server.access.hosts import Hosts
from aguila.server.request import Request
from aguila.server.settings import check_list


class AccessControl:
    """Which requests an app answers: by host, origin and credentials."""

    def __init__(
        self,
        authenticate: Authenticate | None,
        *,
        allow_anonymous: bool,
        allowed_hosts: Sequence[str] | None,
        cors_origins: Sequence[str],
        headers_allowed: Sequence[str],
    ) -> None:
        check_list("allowed_hosts", allowed_hosts)
        check_list("cors_origins", cors_origins)
        self.hosts = Hosts(allowed_hosts, is_anonymous=authenticate is None)
        self.origins = Origins(cors_origins, headers_allowed)
        self.is_anonymous = authenticate is None
        """Whether callers need no credentials."""
        self.grants_ownership = authenticate is not None or allow_anonymous
        """Whether callers may list, change and delete threads, and use files."""
        self._authenticate = authenticate

    async def identify(self, request: Request) -> tuple[Any, str]:
        """Return the principal of a request and its scope. Raises ``Rejected`` (401), or the exception of the hook."""
        return (None, ANONYMOUS) if self._authenticate is None else await identify(self._authenticate, request)
