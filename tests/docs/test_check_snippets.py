"""scripts/check_snippets.py checks every Python block of the documents strictly, those with a framework too."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]


def load_script() -> Any:
    spec = importlib.util.spec_from_file_location("check_snippets", ROOT / "scripts/check_snippets.py")
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    return script


def test_every_block_is_checked_strictly_at_its_own_lines() -> None:
    script = load_script()
    frameworks = 0
    for document in script.DOCUMENTS:
        modules: dict[str, str] = script.modules_of(document)
        assert all(module.startswith("# pyright: strict, ") for module in modules.values())
        lines = document.read_text().splitlines()
        for name, module in modules.items():
            checked = {number: line for number, line in enumerate(module.splitlines()) if number > 1 and line.strip()}
            for number, line in checked.items():
                assert line.strip() == lines[number].strip() or "def " in line, f"{name}: {line}"
        text = "\n".join(modules.values())
        for block in script.BLOCK.finditer(document.read_text()):
            imports = [line.strip() for line in block[2].splitlines() if line.startswith("from ")]
            assert block[2].startswith(">>>") or all(line in text for line in imports)
        frameworks += sum("reportMissingImports=false" in module for module in modules.values())
    assert frameworks >= 9


def test_a_run_without_annotation_gets_its_type(tmp_path: Path) -> None:
    script = load_script()
    script.ROOT = tmp_path
    document = tmp_path / "page.md"
    document.write_text("# Page\n\n```python\nasync def agent(run):\n    ...\n\ndef plain(run):\n    ...\n```\n")
    (module,) = script.modules_of(document).values()
    assert "async def agent(run: aguila.agent.Run):" in module
    assert "\ndef plain(run: aguila.agent.BlockingRun):" in module
    assert "import aguila.agent\n" in module
