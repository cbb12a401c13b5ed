"""``Page``: how the page presents itself, for apps that show it to the users of a product."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec

_COLOUR: Final = re.compile(r"#(?:[0-9a-fA-F]{3}|[0-9a-fA-F]{6})")
_MAX_SUGGESTIONS: Final = 12
TRACE_ID: Final = "{trace_id}"
LOGO_TYPES: Final = (".svg", ".png", ".jpg", ".jpeg", ".webp", ".gif")


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """How the page presents itself: ``App(agent, page=Page(title="Acme"))``. docs/page.md describes it.

    ``title``: the name in the header and in the title of the window; by default Aguila.
    ``logo``: an image file, which the app serves, or the path of an address of this site (``"/static/logo.svg"``).
    ``accent``: the colour of buttons and links as ``#rrggbb``. The page makes it darker or lighter where it could not
    be read.
    ``welcome``: a text in Markdown that a new thread shows, instead of the description of the agent.
    ``suggestions``: messages to click in a new thread, instead of those in the capabilities of the app.
    ``login``: where a visitor without valid credentials is sent, instead of being asked for a token: a path of this
    site, or an ``https://`` address. The parameter ``next`` has the address to return to.

    Raises ``ValueError`` for a value that the page cannot show.
    """

    title: str | None = None
    logo: str | os.PathLike[str] | None = None
    accent: str | None = None
    welcome: str | None = None
    suggestions: Sequence[str] = ()
    login: str | None = None

    def __post_init__(self) -> None:
        for name in ("title", "welcome"):
            text: Any = getattr(self, name)
            if text is not None and not (isinstance(text, str) and text.strip()):
                raise ValueError(f"Page({name}={text!r}) is not a text; leave it out for the default")
        if self.accent is not None and not (isinstance(self.accent, str) and _COLOUR.fullmatch(self.accent)):
            raise ValueError(f"Page(accent={self.accent!r}) is not a colour; use a form such as '#2450d8'")
        suggestions: Any = self.suggestions
        if isinstance(suggestions, str):  # it would be read as a list of letters
            raise ValueError(f"suggestions is the string {suggestions!r}; use a list: suggestions=[{suggestions!r}]")
        if len(suggestions) > _MAX_SUGGESTIONS:
            raise ValueError(f"suggestions has {len(suggestions)} texts; the page shows at most {_MAX_SUGGESTIONS}")
        for text in suggestions:
            if not (isinstance(text, str) and text.strip()):
                raise ValueError(f"suggestions has {text!r}, which is not a text to send")
        if self.login is not None and not (_is_path(self.login) or _is_web_address(self.login)):
            raise ValueError(
                f"Page(login={self.login!r}) is not an address to sign in at; use a path of this site such as "
                "'/login', or an https:// address"
            )
        self._check_logo()

    def _check_logo(self) -> None:
        if self.logo is None or (isinstance(self.logo, str) and _is_path(self.logo)):
            return
        if isinstance(self.logo, str):
            raise ValueError(
                f"Page(logo={self.logo!r}) is not a path of this site; use one such as '/static/logo.svg', or "
                "Path('logo.svg') for a file that the app serves. The page loads nothing from other hosts"
            )
        file = Path(self.logo)
        if file.suffix.lower() not in LOGO_TYPES:
            raise ValueError(
                f"Page(logo={str(file)!r}) is not an image; use a file with one of {', '.join(LOGO_TYPES)}"
            )
        if not file.is_file():
            raise ValueError(f"Page(logo={str(file)!r}) does not exist")


def check_trace_url(template: Any) -> None:
    """Raise ``ValueError`` for a template that is not the address of a trace."""
    filled: Any = template.replace(TRACE_ID, "0") if isinstance(template, str) else None
    if filled == template or not (_is_path(filled) or _is_web_address(filled)):
        raise ValueError(
            f"App(trace_url={template!r}) is not the address of a trace; use one with {TRACE_ID}, such as "
            f"'https://jaeger.example/trace/{TRACE_ID}'"
        )


def _is_path(text: Any) -> bool:
    """Return whether a text is an absolute path of this site. Browsers read ``//`` and ``/\\`` as another host."""
    return isinstance(text, str) and re.fullmatch(r"/(?![/\\])[^\s\\]*", text) is not None


def _is_web_address(text: Any) -> bool:
    if not isinstance(text, str) or re.search(r"[\s\\]", text):
        return False
    try:
        parts = urlsplit(text)
    except ValueError:
        return False
    return parts.scheme in ("https", "http") and bool(parts.hostname)
