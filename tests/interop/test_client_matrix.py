"""Every generation of ``@ag-ui/client`` over every feature of the demo; the table is docs/clients.md."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.append(str(Path(__file__).parent))

from client_matrix import FEATURES, PAGE, VERSIONS, Broken, drive, judge, observe, page
from processes.commands import aguila_serve

from aguila.cli import demo

Observed = dict[str, dict[str, Any]]


@pytest.fixture(scope="module")
def observed() -> Observed:
    return observe()


@pytest.mark.parametrize("version", VERSIONS)
def test_every_feature_works_as_far_as_the_client_can_express_it(observed: Observed, version: str) -> None:
    broken: dict[str, str] = {}
    for feature in FEATURES:
        try:
            judge(observed[version][feature], feature)
        except Broken as error:
            broken[feature] = str(error)[:500]
    assert broken == {}


def test_the_current_client_loses_nothing(observed: Observed) -> None:
    assert [feature for feature in FEATURES if judge(observed["1.0.0"][feature], feature)] == []


def test_0_0_59_reads_subagents_if_they_are_sent(tmp_path: Path) -> None:
    source = "from aguila import App\nfrom aguila.server import Sends\nfrom aguila.cli.demo import agent\n"
    (tmp_path / "mine.py").write_text(source + "app = App(agent, sends=Sends(undeclared_peers='subagents'))\n")
    with aguila_serve(tmp_path, "mine:app") as server:
        seen = drive(server.url, "0.0.59", ["subagents"])
        assert judge(seen["subagents"], "subagents") == []


def test_every_feature_of_the_demo_has_a_row() -> None:
    assert set(demo.FEATURES) <= set(FEATURES)


def test_the_table_in_the_documents_is_current(observed: Observed) -> None:
    assert PAGE.read_text() == page(observed), "run: make clients"
