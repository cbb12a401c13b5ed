"""A SQLite file of schema 17, the last one before this schema, and the documents that its server returned about it.

``tests/store/sqlite/legacy`` has the file as SQL text, and the documents as JSON. ``make.py`` beside them made both,
with the code of that time.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from serving import Peer

from stores.demo_store import seen

FOLDER = Path(__file__).parents[2] / "store" / "sqlite" / "legacy"

SCOPES = ("ana", "bob")
IMAGE = base64.b64encode(bytes(range(256)) * 49).decode()
"""Long enough to be stored once, as an inline file."""
OPEN = "open"
"""The thread of ``ana`` whose run had not ended. A server would end it, so it is not in the documents."""


def authenticate(request: Any) -> str | None:
    """Name the caller by a header."""
    return request.headers.get("x-user")


def build(path: Path) -> Path:
    """Build the file from its SQL text."""
    with closing(sqlite3.connect(path)) as db:
        db.executescript((FOLDER / "store.sql").read_text(encoding="utf-8").replace("<image>", IMAGE))
    return path


def expected_documents() -> dict[str, Any]:
    """Return the documents that the old server returned, and the ids of the files of each scope."""
    return json.loads((FOLDER / "documents.json").read_text(encoding="utf-8"))


def documents_of(peers: Mapping[str, Peer], files: Mapping[str, list[str]]) -> dict[str, Any]:
    """Return the documents of each scope as JSON, with a short text in place of the image."""
    found = {scope: seen(peer, files[scope]) for scope, peer in peers.items()}
    for documents in found.values():
        documents["/threads"] = [one for one in documents["/threads"] if one["threadId"] != OPEN]
        for name in [name for name in documents if name.startswith(f"/threads/{OPEN}")]:
            del documents[name]
    text = json.dumps(found, default=lambda data: base64.b64encode(data).decode())
    return json.loads(text.replace(IMAGE, "<image>"))
