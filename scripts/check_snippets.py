"""Type-check the Python in our documents strictly, and the examples as a user's editor would.

Each document becomes one module in ``build/snippets``: its Python blocks in place, everything else as blank lines, so
that a line number in a finding is the line of the document. A block that uses a framework, or that imports another file
of its page, becomes a module of its own. These are not there (tests/peers has the frameworks), so what comes from them
has no type.

The documents leave out the annotations of an agent's ``run`` and of the fixtures of pytest. They are added here.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
OUT = ROOT / "build" / "snippets"
EXAMPLES = "".join(example.read_text() for example in sorted(ROOT.glob("examples/*.py")))
DOCUMENTS = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md")), *sorted(ROOT.glob("docs/how-to/*.md"))]
BLOCK = re.compile(r"^( *)```python\n(.*?)^ *```", re.MULTILINE | re.DOTALL)
FRAMEWORK = re.compile(
    r"^from (?:aguila\.frameworks import (?!from_events|upstream)"
    r"|(?:app|before|ag_ui_langgraph|agent_framework|langgraph_sdk|opentelemetry\.exporter)\b)",
    re.MULTILINE,
)
FUNCTION = re.compile(r"^( *)(async )?def (\w+)\(([\w, ]+)\)", re.MULTILINE)
LEFT_OUT = {
    "run": "aguila.agent.BlockingRun",
    "async run": "aguila.agent.Run",
    "agui_client": "aguila.testing.plugin.ClientMaker",
    "assert_stream": "aguila.testing.plugin.StreamAssertion",
    "clock": "aguila.testing.store_contract.support.Clock",
    "tmp_path": "pathlib.Path",
}
"""Parameters without annotation, and their types. A plain function gets the run for threads."""

RULES = "strict, reportRedeclaration=false, reportDuplicateImport=false, reportUnusedExpression=false"
"""A document shows several agents of one name, imports again what a block needs, and values that it explains."""

WITHOUT_FRAMEWORK = (
    f"{RULES}, reportMissingImports=false, reportAttributeAccessIssue=false, reportUnknownMemberType=false, "
    "reportUnknownVariableType=false, reportUnknownParameterType=false, reportUnknownArgumentType=false, "
    "reportUnknownLambdaType=false, reportUntypedBaseClass=false, reportUntypedFunctionDecorator=false"
)
NAMES = {
    # Names that a document takes for granted.
    "docs/stores.md": "from typing import Any; from sqlite3 import Connection as MyDatabase; MyStore: Any = ...",
    "docs/telemetry.md": "from aguila import App; from aguila.cli.demo import agent",
}


def modules_of(document: Path) -> dict[str, str]:
    """Return the Python of a document as modules by name, each block at its own lines."""
    text = document.read_text()
    name = "_".join(document.relative_to(ROOT).with_suffix("").parts).replace("-", "_").lower()
    modules = {name: [f"# pyright: {RULES}", NAMES.get(str(document.relative_to(ROOT)), "")]}
    for block in BLOCK.finditer(text):
        code = block[2]
        if code.startswith(">>>") or code in EXAMPLES:  # a quotation is checked in its example
            continue
        first = text.count("\n", 0, block.start(2))
        own = name
        if FRAMEWORK.search(code):
            own = f"{name}_line_{first}"
            modules[own] = [f"# pyright: {WITHOUT_FRAMEWORK}", ""]
        lines = modules[own]
        lines += [""] * (first - len(lines))
        lines += [line[len(block[1]) :] for line in code.splitlines()]
    return {own: _annotated("\n".join(lines) + "\n") for own, lines in modules.items()}


def _annotated(module: str) -> str:
    """Add the types of parameters that the documents leave out."""

    def annotate(found: re.Match[str]) -> str:
        names = [name.strip() for name in found[4].split(",")]
        typed = [f"{name}: {kind}" if (kind := _type_of(name, found[2])) else name for name in names]
        return f"{found[1]}{found[2] or ''}def {found[3]}({', '.join(typed)})"

    lines = FUNCTION.sub(annotate, module).split("\n")
    used = sorted({kind.rpartition(".")[0] for kind in LEFT_OUT.values() if f": {kind}" in "\n".join(lines)})
    lines[1] = "; ".join(filter(None, [lines[1], *(f"import {module}" for module in used)]))
    return "\n".join(lines)


def _type_of(name: str, is_async: str | None) -> str | None:
    return LEFT_OUT.get(f"async {name}" if is_async else name, LEFT_OUT.get(name))


def main() -> int:
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.py"):
        old.unlink()
    for document in DOCUMENTS:
        for name, module in modules_of(document).items():
            (OUT / f"{name}.py").write_text(module)
    config = {
        "include": ["../../examples", "."],
        "exclude": ["../../examples/**/node_modules"],
        "typeCheckingMode": "standard",
        "pythonVersion": "3.11",
        "venvPath": str(ROOT),
        "venv": ".venv",
        "extraPaths": [str(ROOT / "src"), str(ROOT / "examples")],
        "reportRedeclaration": "none",
        "reportUnusedExpression": "none",
    }
    path = OUT / "pyrightconfig.json"
    path.write_text(json.dumps(config))
    pyright = Path(sys.executable).parent / "pyright"
    return subprocess.run([str(pyright), "--project", str(path)], check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
