"""Type-check the examples and the Python in our documents, as a user's editor would.

Each document becomes one module in ``build/snippets``: its Python blocks in place, everything else as blank lines, so
that a line number in a finding is the line of the document.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "snippets"
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FRAMEWORK = re.compile(r"^from aguila\.frameworks import (?!from_events|upstream)", re.MULTILINE)
NAMES = {
    # Names that a document takes for granted, such as the fixtures of pytest.
    "docs/migrating-from-ag-ui.md": "from typing import Any; ag_ui_event: Any = ...",
}


def module_of(document: Path) -> str:
    """Return the Python of a document, each block at its own lines."""
    text = document.read_text()
    lines = [""] * (text.count("\n") + 1)
    for block in BLOCK.finditer(text):
        code = block[2]
        if code.startswith(">>>") or FRAMEWORK.search(code):  # tests/peers runs these, with the framework installed
            continue
        first = text.count("\n", 0, block.start(2))
        indent = len(block[1])
        for offset, line in enumerate(code.splitlines()):
            lines[first + offset] = line[indent:]
    lines[0] = NAMES.get(str(document.relative_to(ROOT)), "")
    return "\n".join(lines)


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.py"):
        old.unlink()
    for document in DOCUMENTS:
        (OUT / f"{document.stem.replace('-', '_').lower()}.py").write_text(module_of(document))
    config = {
        "include": ["../../examples", "."],
        "exclude": ["../../examples/**/node_modules"],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "venvPath": str(ROOT),
        "venv": ".venv",
        "extraPaths": [str(ROOT / "src"), str(ROOT / "examples")],
        "reportRedeclaration": "none",  # a document shows several agents of the same name
        "reportUnusedExpression": "none",  # and values that it explains
    }
    path = OUT / "pyrightconfig.json"
    path.write_text(json.dumps(config))
    pyright = Path(sys.executable).parent / "pyright"
    return subprocess.run([str(pyright), "--project", str(path)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
