"""The compatibility boundary: translate older shapes to the current ones (ERA-1, VER-18).

``boundary`` walks the input and ``rules`` lists the rules; each is a function in ``spelling``, ``events`` or
``documents``. Members of an older shape that have no current place move to ``metadata["aguila"]``.
"""

from aguila.codec.compat.boundary import Compat
from aguila.codec.compat.context import METADATA_KEY, Level, Rule
from aguila.codec.compat.rules import RULES

__all__ = ["METADATA_KEY", "RULES", "Compat", "Level", "Rule"]
