"""Check the links of the finished site: pages, files and anchors, and that nothing is loaded from elsewhere."""

from __future__ import annotations

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urljoin, urlsplit


class _Page(HTMLParser):
    """The links and the anchors of a page."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.anchors: set[str] = {""}
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value or "" for name, value in attrs}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        addresses = self.links if tag == "a" else self.loaded
        addresses += [found[name] for name in ("src", "href") if name in found]


def broken_links(site: Path) -> list[str]:
    """Return the links to pages or anchors that do not exist, and what would be loaded from another host."""
    pages = {path.relative_to(site).as_posix(): _Page(path.read_text("utf-8")) for path in site.rglob("*.html")}
    del pages["404.html"]  # its links depend on where the site is
    broken: list[str] = []
    for name, page in pages.items():
        for link in dict.fromkeys(page.links + page.loaded):
            parts = urlsplit(urljoin(f"/{name}", link))
            if parts.scheme or parts.netloc:
                broken += [f"{name} loads {link}"] if link in page.loaded and parts.scheme != "data" else []
                continue
            target = unquote(parts.path).removeprefix("/")
            target += "index.html" if target.endswith("/") or not target else ""
            if not (site / target).is_file():
                broken.append(f"{name}: {link} is no file of the site")
            elif target in pages and unquote(parts.fragment) not in pages[target].anchors:
                broken.append(f"{name}: {link} is no anchor of {target}")
    return broken
