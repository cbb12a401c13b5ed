"""Serve the files of the page: the HTML shell at the root of the app, hashed assets below ``/_page/``.

They are public and contain no data. The page fetches its data from the other routes, with the caller's credentials.
"""

from __future__ import annotations

import gzip
import hashlib
import html
import mimetypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

from starlette.routing import BaseRoute

from aguila.codec import encode
from aguila.errors import NotFound
from aguila.server.frontends.page.options import Page
from aguila.server.http.front_end import FrontEnd
from aguila.server.http.openapi.operation import ANY, Answer, Operation, Operations
from aguila.server.http.request import Request
from aguila.server.http.responses import BufferedResponse, Headers, Response
from aguila.server.http.routes import Endpoint, route
from aguila.server.http.service import Service

ASSETS: Final = Path(__file__).parent / "assets"
"""Where the build writes."""

NOT_BUILT: Final = "the page is not built; run `make web`, which needs Node 20.19 or later"

_POLICY: Final = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' blob:; media-src blob:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
"""No inline script, no eval, no other host. Files and inline media are shown from ``blob:`` URLs."""

_SHELL_HEADERS: Final[Headers] = (
    (b"content-security-policy", _POLICY.encode()),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-cache"),
    (b"vary", b"accept"),
)
_ASSET_HEADERS: Final[Headers] = (
    (b"cache-control", b"public, max-age=31536000, immutable"),
    (b"vary", b"accept-encoding"),
)
_MAX_NAME: Final = 255  # bytes; file systems refuse longer names
_MEDIA_TYPES: Final = {".js": b"text/javascript", ".css": b"text/css", ".svg": b"image/svg+xml"}
_BASE: Final = '<meta name="aguila-base" content="./" />'
_ANONYMOUS: Final = '<meta name="aguila-anonymous" content="all" />'
_OPTIONS: Final = '<meta name="aguila-page" content="{}" />'
_TITLE: Final = "<title>Aguila</title>"
_NOT_BUILT_HTML: Final = """<!doctype html>
<html lang="en"><meta charset="utf-8"><meta http-equiv="refresh" content="3"><title>Aguila</title>
<p>The page is not built. Run <code>make web</code>, which needs Node 20.19 or later.
<p>This address shows the page as soon as it is built.
"""


class PageFiles(FrontEnd):
    """The built files of the page. A build that ends while the app runs is found by the next request."""

    def __init__(
        self,
        folder: Path = ASSETS,
        *,
        allows_anonymous: bool = True,
        options: Page | None = None,
        trace_url: str | None = None,
    ) -> None:
        self._folder = folder
        self._options = Page() if options is None else options
        self._trace_url = trace_url
        self._allows_anonymous = allows_anonymous  # if not, the page omits requests that would be refused
        self._bodies: dict[str, tuple[bytes, bytes]] = {}
        self._logo: str | None = None
        logo = self._options.logo
        if logo is not None and not isinstance(logo, str):
            body = Path(logo).read_bytes()
            self._logo = f"logo-{hashlib.sha256(body).hexdigest()[:12]}{Path(logo).suffix.lower()}"
            self._bodies[self._logo] = body, gzip.compress(body, mtime=0)

    @property
    def is_built(self) -> bool:
        """Whether the files exist."""
        return (self._folder / "index.html").is_file()

    @property
    def routes(self) -> Sequence[BaseRoute]:
        return (route("/_page/{name}", {"GET": self._send_asset}, is_public=True),)

    @property
    def operations(self) -> Operations:
        sent = Answer(description="The file", content={ANY: None})
        return {self._send_asset: Operation(summary="Get a file of the page", answers={200: sent})}

    root_operation = Operation(
        summary="Show the page",
        answers={
            200: Answer(description="The page, for browsers", content={"text/html": None}),
            503: Answer(description="The page is not built", content={"text/html": None}),
        },
    )

    def root(self, request: Request) -> Endpoint | None:
        if request.method not in ("GET", "HEAD") or not _wants_html(request):
            return None
        return Endpoint({"GET": self._send_shell}, is_public=True)

    async def _send_shell(self, service: Service, request: Request) -> Response:
        return self._shell(request, request.agent)

    async def _send_asset(self, service: Service, request: Request) -> Response:
        return self._asset(request.ids[0], request)

    def _shell(self, request: Request, agent: str | None) -> BufferedResponse:
        media_type = b"text/html; charset=utf-8"
        try:
            text = (self._folder / "index.html").read_text()
        except FileNotFoundError:
            body = _NOT_BUILT_HTML.encode()
            return BufferedResponse(status=503, body=body, media_type=media_type, headers=_SHELL_HEADERS)
        if not self._allows_anonymous:
            text = text.replace(_ANONYMOUS, _ANONYMOUS.replace("all", "run"))
        root = quote(request.scope.get("root_path", "").rstrip("/"))
        is_relative = not root and agent is None
        text = text.replace(_OPTIONS, self._describe_options("." if is_relative else root))
        if self._options.title is not None:
            text = text.replace(_TITLE, f"<title>{html.escape(self._options.title)}</title>")
        if not is_relative:
            below = "" if agent is None else f"/agents/{quote(agent, safe='')}"  # there may be no such agent
            text = text.replace(_BASE, _BASE.replace("./", html.escape(f"{root}{below}/")))
            text = text.replace('="./', f'="{html.escape(root)}/')
        return BufferedResponse(body=text.encode(), media_type=media_type, headers=_SHELL_HEADERS)

    def _describe_options(self, root: str) -> str:
        """Return the options as JSON in an element that executes nothing. ``root`` is the address of the app."""
        options = self._options
        values: dict[str, Any] = {
            "title": options.title,
            "logo": options.logo if self._logo is None else f"{root}/_page/{self._logo}",
            "accent": options.accent,
            "welcome": options.welcome,
            "suggestions": list(options.suggestions) or None,
            "login": options.login,
            "traceUrl": self._trace_url,
        }
        given = encode({name: value for name, value in values.items() if value is not None}).decode()
        return _OPTIONS.replace("{}", html.escape(given))

    def _asset(self, name: str, request: Request) -> BufferedResponse:
        if name not in self._bodies:
            path = self._folder / "_page" / name
            if (
                len(name.encode()) > _MAX_NAME
                or "/" in name
                or "\\" in name
                or name.startswith(".")
                or not path.is_file()
            ):
                raise NotFound(f"the page has no file {name!r}; reload the page")
            body = path.read_bytes()
            self._bodies[name] = body, gzip.compress(body, mtime=0)
        body, compressed = self._bodies[name]
        suffix = Path(name).suffix
        media_type = _MEDIA_TYPES.get(suffix) or (mimetypes.guess_type(name)[0] or "application/octet-stream").encode()
        if "gzip" in request.headers.get("accept-encoding", ""):
            headers = [*_ASSET_HEADERS, (b"content-encoding", b"gzip")]
            return BufferedResponse(body=compressed, media_type=media_type, headers=headers)
        return BufferedResponse(body=body, media_type=media_type, headers=_ASSET_HEADERS)


def _wants_html(request: Request) -> bool:
    """Return whether a browser navigates here. TanStack AI's requests for a thread or a run have query parameters."""
    ranges = [each.split(";")[0].strip().lower() for each in request.headers.get("accept", "").split(",")]
    return "text/html" in ranges and not {"threadId", "runId"} & request.query.keys()
