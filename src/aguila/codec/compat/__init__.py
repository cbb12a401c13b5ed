"""Layer: codec. The compatibility boundary: older shapes in, today's shapes out (ERA-1, VER-18).

``boundary`` walks the input, ``rules`` lists what it recognises; each rule is a function in ``spelling``, ``events`` or
``documents``. What an old shape carries that today's has no place for is kept under ``metadata["aguila"]``.
"""

from aguila.codec.compat.boundary import Compat
from aguila.codec.compat.context import METADATA_KEY, Level, Rule
from aguila.codec.compat.rules import RULES

__all__ = ["METADATA_KEY", "RULES", "Compat", "Level", "Rule"]
