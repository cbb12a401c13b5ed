"""docs/stores.md shows what the tested example does, and names tests that exist."""

from __future__ import annotations

import re
import textwrap

from serving import REPOSITORY

from aguila.store import Store
from aguila.testing import StoreContract

DOCUMENT = (REPOSITORY / "docs" / "stores.md").read_text()


def test_the_code_is_that_of_the_example() -> None:
    source = (REPOSITORY / "examples" / "24_own_store.py").read_text()
    blocks = [block for block in re.findall(r"```python\n(.*?)```", DOCUMENT, re.DOTALL) if "import" not in block]
    assert len(blocks) == 2
    for block in blocks:
        assert textwrap.indent(textwrap.dedent(block), "    ") in source


def test_the_tests_and_methods_that_it_names_exist() -> None:
    for name in re.findall(r"`(test_\w+)`", DOCUMENT):
        assert hasattr(StoreContract, name), name
    for name in re.findall(r"`(COMPACTS|STEPS|make_second)`", DOCUMENT):
        assert hasattr(StoreContract, name)


def test_it_names_the_methods_to_write() -> None:
    table = DOCUMENT.split("| | methods |")[1].split("\n\n")[0]
    named = re.findall(r"`(\w+)`", table)
    assert sorted(named) == sorted(Store.__abstractmethods__)
    assert f"with {len(named)} methods" in DOCUMENT
