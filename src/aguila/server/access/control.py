"""The checks of a request before its handler is called."""

from __future__ import annotations

from collections.abc import Sequence

from aguila.server.access.authentication import Authenticate
from aguila.server.access.cors import Origins
from aguila.server.access.hosts import Hosts
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
    ) -> None:
        check_list("allowed_hosts", allowed_hosts)
        check_list("cors_origins", cors_origins)
        self.hosts = Hosts(allowed_hosts, is_anonymous=authenticate is None)
        self.origins = Origins(cors_origins)
        self.authenticate = authenticate
        """Returns the principal of a request; None if callers need no credentials."""
        self.grants_ownership = authenticate is not None or allow_anonymous
        """Whether callers may list, change and delete threads, and use files."""
