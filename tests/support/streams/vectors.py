"""The documents of ``tests/codec/vectors``: for every definition of the protocol, valid ones and invalid ones.

A file maps a definition to ``{"as": ..., "valid": [document], "invalid": [[rule, path, why, document]]}``. ``as`` is
the type that a reader asks for: the union where objects are told apart by a discriminator, ``patch`` for a JSON Patch
operation, which is read as the only operation of a STATE_DELTA.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aguila.protocol

DIRECTORY = Path(__file__).parents[2] / "codec" / "vectors"


@dataclass(frozen=True)
class Vector:
    definition: str
    read_as: str
    document: Any
    rule: str | None = None
    path: str = ""
    why: str = ""

    @property
    def type(self) -> Any:
        """The type to decode."""
        return aguila.protocol.Event if self.read_as == "patch" else getattr(aguila.protocol, self.read_as)

    @property
    def wire(self) -> Any:
        """The document that travels."""
        if self.read_as == "patch":
            return {"type": "STATE_DELTA", "delta": [self.document]}
        return self.document

    @property
    def pointer(self) -> str:
        """The pointer that the error of the decoder must have."""
        return "/delta/0" + self.path if self.read_as == "patch" else self.path

    def __str__(self) -> str:
        return f"{self.definition}: {self.why or json.dumps(self.document)[:60]}"


def _load() -> tuple[list[Vector], list[Vector]]:
    valid: list[Vector] = []
    invalid: list[Vector] = []
    for file in sorted(DIRECTORY.glob("*.json")):
        for definition, entry in json.loads(file.read_text("utf-8")).items():
            valid += [Vector(definition, entry["as"], document) for document in entry["valid"]]
            invalid += [
                Vector(definition, entry["as"], document, rule, path, why)
                for rule, path, why, document in entry["invalid"]
            ]
    return valid, invalid


VALID, INVALID = _load()
