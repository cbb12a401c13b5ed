"""Apply and make JSON Patches (RFC 6902): ``apply_patch`` and ``make_patch``."""

from aguila.stream.patch.apply import PatchLimit, apply_patch
from aguila.stream.patch.diff import make_patch

__all__ = ["PatchLimit", "apply_patch", "make_patch"]
