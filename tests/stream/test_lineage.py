"""The tree of runs, and paths along it."""

import pytest

from aguila.protocol import (
    RunAgentInput,
    RunErrorEvent,
    RunFinishedEvent,
    RunStartedEvent,
    StateDeltaEvent,
    TextMessageContentEvent,
    TextMessageEndEvent,
    TextMessageStartEvent,
    UserMessage,
)
from aguila.stream.lineage import Lineage, RunTree
from aguila.stream.reducer import reduce


def run(run_id, parent=None, **fields):
    return [
        RunStartedEvent(thread_id="t", run_id=run_id, parent_run_id=parent, **fields),
        TextMessageStartEvent(message_id=f"m-{run_id}"),
        TextMessageContentEvent(message_id=f"m-{run_id}", delta=run_id),
        TextMessageEndEvent(message_id=f"m-{run_id}"),
        StateDeltaEvent(delta=[{"op": "add", "path": f"/{run_id}", "value": True}]),
        RunFinishedEvent(thread_id="t", run_id=run_id),
    ]


def log(*runs):
    return [event for events in runs for event in events]


TREE = log(run("a"), run("b"), run("c", "a"), run("d"), run("e", "b"))


def test_a_run_without_a_parent_continues_the_latest_and_one_with_a_parent_continues_that():
    lineage = Lineage(TREE)
    assert [(r.run_id, r.parent_run_id) for r in lineage.runs] == [
        ("a", None),
        ("b", "a"),
        ("c", "a"),
        ("d", "c"),
        ("e", "b"),
    ]
    assert lineage.run("a").children == ["b", "c"]
    assert (lineage.roots, lineage.latest) == (["a"], "e")
    assert (lineage.run("c").start, lineage.run("c").thread_id) == (12, "t")


def test_branches_end_in_runs_that_none_continues():
    assert Lineage(TREE).branches() == {"d": ["a", "c", "d"], "e": ["a", "b", "e"]}


def test_a_path_leads_from_the_root_and_its_events_are_those_of_its_runs():
    lineage = Lineage(TREE)
    assert lineage.path("c") == ["a", "c"]
    assert lineage.events_along("c") == log(run("a"), run("c", "a"))


def test_time_travel_shows_the_conversation_after_any_run():
    conversation = Lineage(TREE).reduce_along("e", state={"x": 0}, messages=[UserMessage(id="u", content="")])
    assert [m.id for m in conversation.messages] == ["u", "m-a", "m-b", "m-e"]
    assert conversation.state == {"x": 0, "a": True, "b": True, "e": True}
    assert [r.run_id for r in conversation.runs] == ["a", "b", "e"]
    assert Lineage(TREE).reduce_along("a") == reduce(run("a"))


def test_the_input_may_name_the_parent():
    echo = RunAgentInput(thread_id="t", run_id="c", messages=[], parent_run_id="a")
    assert Lineage(log(run("a"), run("b"), run("c", input=echo))).path("c") == ["a", "c"]


def test_an_unknown_parent_makes_a_root_with_a_notice():
    notices = []
    lineage = Lineage(log(run("a"), run("b", "elsewhere"), run("c")), warn=notices.append)
    assert (lineage.roots, lineage.path("c")) == (["a", "b"], ["b", "c"])
    assert [(n.rule, n.path) for n in notices] == [("LIFE-2", "/parentRunId")]


@pytest.mark.parametrize("parent", ["b", "c"])
def test_neither_itself_nor_a_later_run_can_be_a_parent(parent):
    lineage = Lineage(log(run("a"), run("b", parent), run("c")), warn=lambda _: None)
    assert lineage.roots == ["a", "b"]


def test_a_run_id_used_twice_means_the_later_run_env_11():
    notices = []
    lineage = Lineage(log(run("a"), run("b"), run("c"), run("b", "a")), warn=notices.append)
    assert lineage.path("c") == ["a", "b", "c"]
    assert lineage.path("b") == ["a", "b"]
    assert lineage.run("b").start == 18
    assert [n.rule for n in notices] == ["ENV-11"]


def test_a_late_error_belongs_to_the_run_before_it():
    error = RunErrorEvent(message="late")
    lineage = Lineage([*run("a"), error, *run("b", "a")])
    assert lineage.run("a").events[-1] == error
    assert lineage.reduce_along("a").run_error == error


def test_events_before_the_first_run_are_in_no_branch():
    notices = []
    lineage = Lineage([RunErrorEvent(message="refused"), *run("a")], warn=notices.append)
    assert lineage.events_along("a") == run("a")
    assert [n.rule for n in notices] == ["LIFE-1"]


def test_an_empty_log_has_no_runs():
    lineage = Lineage([])
    assert (list(lineage.runs), lineage.roots, lineage.latest, lineage.branches()) == ([], [], None, {})


def test_a_run_that_is_not_there_is_a_key_error():
    with pytest.raises(KeyError):
        Lineage(TREE).path("z")


def test_a_run_starts_from_the_state_that_its_input_echoes_SNAP_4():
    def echo(run_id, state):
        return RunAgentInput(thread_id="t", run_id=run_id, messages=[], state=state)

    runs = log(run("a", input=echo("a", {"x": 0})), run("b"), run("c", "a", input=echo("c", {"edited": 1})))
    lineage = Lineage(runs)
    assert lineage.reduce_along("a").state == {"x": 0, "a": True}
    assert lineage.reduce_along("b", state={"not": "this"}).state == {"x": 0, "a": True, "b": True}
    assert lineage.reduce_along("c").state == {"edited": 1, "c": True}
    # Who reads the one stream has sent the states, and holds them.
    assert reduce(runs).state == {"a": True, "b": True, "c": True}


def test_a_false_state_is_a_state_IN_11():
    change = StateDeltaEvent(delta=[{"op": "test", "path": "", "value": 0}])
    start = RunStartedEvent(
        thread_id="t", run_id="a", input=RunAgentInput(thread_id="t", run_id="a", messages=[], state=0)
    )
    assert Lineage([start, change]).reduce_along("a", state={"x": 1}).state == 0


def test_the_tree_alone_needs_no_events_and_warns_of_a_missing_parent():
    notices = []
    tree = RunTree(notices.append)
    for event in (run("a")[0], run("b")[0], run("c", "a")[0], run("d", "elsewhere")[0]):
        tree.add(event, tree.find_parent(event))
    assert [node.run_id for node in tree.path("c")] == ["a", "c"]
    assert [node.run_id for node in tree["a"].children] == ["b", "c"]
    assert tree["d"].parent is None
    assert tree.latest is tree["d"]
    assert "x" not in tree
    assert [notice.rule for notice in notices] == ["LIFE-2"]
