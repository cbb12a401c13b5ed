"""Write our events and messages the way a published generation of clients reads them.

``table`` says what each generation accepts, ``translator`` rewrites a stream for it, ``content`` rewrites messages and
recognises them when a client sends them back. ``requests`` is the other direction: our input for an old server.
"""

from aguila.codec.dialects.content import Link, is_translation_of, may_be_translated
from aguila.codec.dialects.requests import (
    downgrade_input,
    is_version,
    predates_subagents,
    predates_versions,
    strip_subagents,
)
from aguila.codec.dialects.table import (
    CURRENT,
    GENERATIONS,
    UNDECLARED,
    UNDECLARED_PARALLEL,
    UNDECLARED_WITH_META,
    UNDECLARED_WITH_SUBAGENTS,
    Dialect,
    dialect_of,
)
from aguila.codec.dialects.translator import Translator

__all__ = [
    "CURRENT",
    "GENERATIONS",
    "UNDECLARED",
    "UNDECLARED_PARALLEL",
    "UNDECLARED_WITH_META",
    "UNDECLARED_WITH_SUBAGENTS",
    "Dialect",
    "Link",
    "Translator",
    "dialect_of",
    "downgrade_input",
    "is_translation_of",
    "is_version",
    "may_be_translated",
    "predates_subagents",
    "predates_versions",
    "strip_subagents",
]
