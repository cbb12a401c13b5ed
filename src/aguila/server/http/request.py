"""A request without its body, as handlers, front ends and ``authenticate`` hooks see it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final
from urllib.parse import parse_qsl, quote

from starlette.requests import HTTPConnection
from starlette.types import Receive

from aguila.server.config.errors import Rejected

if TYPE_CHECKING:
    from aguila.server.http.access import Caller
    from aguila.server.http.budget import Reservation

MAX_QUERY_FIELDS: Final = 100


class Request(HTTPConnection):
    """A request without its body. An ``Endpoint`` sets its fields."""

    receive: Receive
    method: str
    agent: str | None = None
    """The agent that the path names. If it is set, only threads of this agent are visible."""
    ids: Sequence[str] = ()
    """The other ids in the path."""
    caller: Caller
    """Who sends the request. It is set before a handler is called."""
    reservation: Reservation
    """The bytes of the body that are counted for the budget of the app."""

    _query: dict[str, str] | None = None

    @property
    def path(self) -> str:
        """The path below the mount of the app, without a trailing slash; ``/`` for its root."""
        root: str = self.scope.get("root_path", "").rstrip("/")
        return self.scope["path"].removeprefix(root).rstrip("/") or "/"

    @property
    def query(self) -> dict[str, str]:
        """The query parameters. If one is repeated, the last value counts. Raises ``Rejected`` for too many."""
        if self._query is None:
            text = self.scope.get("query_string", b"").decode("latin-1")
            try:
                pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=MAX_QUERY_FIELDS) if text else ()
            except ValueError:
                message = f"the query has more than {MAX_QUERY_FIELDS} parameters"
                raise Rejected(422, "too_many_parameters", message) from None
            self._query = dict(pairs)
        return self._query


def root_url(request: Request) -> str:
    """Return the URL at which the client reached the app, without a trailing slash."""
    root: str = request.scope.get("root_path", "").rstrip("/")
    host = request.headers.get("host", "localhost")
    return f"{request.scope.get('scheme', 'http')}://{host}{quote(root)}"


def matches_etag(request: Request, etag: str) -> bool:
    """Return whether If-None-Match lists this ETag, weak (``W/``) or not."""
    names = request.headers.get("if-none-match")
    listed = [] if names is None else [name.strip().removeprefix("W/") for name in names.split(",")]
    return "*" in listed or etag in listed
