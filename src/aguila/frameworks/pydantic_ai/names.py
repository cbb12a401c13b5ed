"""The names and ids that every vendor accepts, and text without halves of characters.

Front ends name tools and calls as they like, and histories come from other models. Replacements are made for the
request only; calls in the answer get their original names back.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

import msgspec

from aguila.codec.json.values import is_array, is_object
from aguila.protocol import replace

_NAME: Final = re.compile(r"[a-zA-Z_][a-zA-Z0-9_-]{0,63}\Z")
_CALL_ID: Final = re.compile(r"[a-zA-Z0-9_-]{1,40}\Z")
"""What Anthropic, Gemini, OpenAI and Bedrock accept in common."""


class Names:
    """Names of tools for the model, and our names for those."""

    def __init__(self, names: Iterable[str]) -> None:
        self._for_model: dict[str, str] = {}
        self._own: dict[str, str] = {}
        for name in names:
            self.for_model(name)

    def for_model(self, name: str) -> str:
        """Return the model's name of a tool, also of one that only the history has."""
        if name not in self._for_model:
            made = name
            if _NAME.match(name) is None:
                made = re.sub(r"[^a-zA-Z0-9_-]", "_", name)
                made = (made if re.match("[a-zA-Z_]", made) else f"tool_{made}")[:64]
            if made in self._own:
                made = f"{made[:55]}_{_digest(name)[:8]}"
            self._for_model[name] = made
            self._own[made] = name
        return self._for_model[name]

    def own(self, name: str) -> str:
        """Return our name of a tool for the model's name."""
        return self._own.get(name, name)


def call_id_for_model(call_id: str) -> str:
    """Return the id of a call: its own, unless a vendor would refuse it."""
    return call_id if _CALL_ID.match(call_id) else f"call_{_digest(call_id)}"


def _digest(text: str) -> str:
    """Hash a text to letters and digits of five bits each: nine of them are unique enough for a thread."""
    digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
    return base64.b32encode(digest).decode("ascii")[:24].lower()


# Half an emoji, cut by a JavaScript peer or a tool, is not Unicode text: the SDKs cannot encode it.

_HALF: Final = re.compile("[\ud800-\udfff]")
_EXACT: Final = frozenset({"call_id", "name", "raw_representation", "data"})
"""Fields that stay as they are: ids and names are looked up, and converted above if necessary."""


def replace_surrogates(value: Any) -> Any:
    """Join adjacent surrogates, and replace lone ones by U+FFFD. Returns the same object if there are none."""
    if isinstance(value, str):
        if value.isascii() or _HALF.search(value) is None:
            return value
        return value.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")
    if is_array(value):
        elements: list[Any] = value
        others = [replace_surrogates(element) for element in elements]
        return others if any(new is not old for new, old in zip(others, elements, strict=True)) else elements
    if is_object(value):
        members: dict[str, Any] = value
        fresh = [(replace_surrogates(name), replace_surrogates(member)) for name, member in members.items()]
        pairs = zip(fresh, members.items(), strict=True)
        return dict(fresh) if any(new[0] is not old[0] or new[1] is not old[1] for new, old in pairs) else members
    if isinstance(value, msgspec.Struct):
        found = {name: getattr(value, name) for name in value.__struct_fields__ if name not in _EXACT}
        changed = {name: new for name, old in found.items() if (new := replace_surrogates(old)) is not old}
        return replace(value, **changed) if changed else value
    return value
