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
    for name in re.findall(r"`(COMPACTS|STEPS)`", DOCUMENT):
        assert hasattr(StoreContract, name)


def test_a_store_has_as_many_methods_as_the_document_says() -> None:
    abstract = Store.__abstractmethods__ - {"_start", "_stop"}
    assert f"class with {len(abstract | {'open', 'close'})} methods" in DOCUMENT
    assert len(abstract | {"open", "close"}) == 21
