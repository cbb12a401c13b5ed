"""A framework whose package or extra is missing: the agent cannot be made, and the error says what to install."""

from __future__ import annotations

import importlib
import re
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from aguila.frameworks import adk, ag2, agent_framework, agno, crewai, langgraph, llama_index, openai_agents, strands

GRAPH = SimpleNamespace(astream=None)
OF_OPENAI = SimpleNamespace(handoffs=[], clone=None)
OF_LLAMA_INDEX = SimpleNamespace(run=None, take_step=None)


@pytest.mark.parametrize(
    ("make", "missing", "install"),
    [
        (lambda: langgraph.agent(GRAPH), "langgraph", "pip install langgraph"),
        (lambda: openai_agents.agent(OF_OPENAI), "agents", "pip install openai-agents"),
        (lambda: llama_index.agent(OF_LLAMA_INDEX), "llama_index", "pip install llama-index-core"),
        (lambda: llama_index.agent(SimpleNamespace(run=None)), "ag_ui", "pip install ag-ui-protocol"),
        (lambda: adk.agent(object()), "ag_ui_adk", "pip install ag-ui-adk"),
        (lambda: ag2.agent(object()), "ag2", "pip install 'ag2[ag-ui]'"),
        (lambda: agent_framework.agent(object()), "agent_framework_ag_ui", "pip install agent-framework-ag-ui"),
        (lambda: agno.agent(object()), "agno", "pip install agno ag-ui-protocol fastapi"),
        (lambda: crewai.agent(object()), "ag_ui_crewai", "pip install ag-ui-crewai"),
        (lambda: strands.agent(object()), "ag_ui_strands", "pip install ag-ui-strands"),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_an_agent_cannot_be_made_without_the_package_of_its_framework(
    make: Any, missing: str, install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [one for one in sys.modules if one.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match="is not installed; install it with: ") as raised:
        make()
    assert str(raised.value).endswith(install)


def test_an_agent_cannot_be_made_without_what_the_package_itself_needs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    (tmp_path / "ag_ui_strands.py").write_text("import strands_of_nobody")
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "ag_ui_strands", raising=False)
    problem = "ag_ui_strands needs strands_of_nobody, which is not installed; install it with: pip install ag-ui-str"
    with pytest.raises(ImportError, match=problem):
        strands.agent(ModuleType("agent"))


def test_agents_of_pydantic_ai_need_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [one for one in sys.modules if one.startswith(("aguila.frameworks.pydantic_ai", "pydantic_ai"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)
    with pytest.raises(ImportError, match=re.escape("pip install 'aguila[models]'")):
        importlib.import_module("aguila.frameworks.pydantic_ai")


def test_what_replaced_the_providers_is_said_where_they_are_imported() -> None:
    with pytest.raises(ImportError, match=re.escape("from aguila.frameworks import pydantic_ai")) as raised:
        importlib.import_module("aguila.providers")
    program = "\n".join(line.strip() for line in str(raised.value).splitlines() if line.startswith("    "))
    exec(f"weather = lambda city: 'sun'\n{program.replace('openai:gpt-5.4-mini', 'test')}", {})
