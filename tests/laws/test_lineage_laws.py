"""Laws of lineage, over random logs with branches."""

from builders import ignore
from hypothesis import given, settings
from streams.random_streams import streams

from aguila.protocol import RunStartedEvent
from aguila.stream.lineage import Lineage
from aguila.stream.reducer import reduce


def split(log):
    runs = {}
    for event in log:
        if isinstance(event, RunStartedEvent):
            current = runs[event.run_id] = []
        if runs:
            current.append(event)
    return runs


@settings(max_examples=150, deadline=None)
@given(streams(120))
def test_a_branch_reduces_to_what_its_runs_alone_would(log):
    lineage = Lineage(log, warn=ignore)
    runs = split(log)
    for leaf, path in lineage.branches().items():
        alone = [event for run_id in path for event in runs[run_id]]
        assert lineage.reduce_along(leaf, warn=ignore) == reduce(alone, warn=ignore)


@settings(max_examples=150, deadline=None)
@given(streams(120))
def test_every_run_is_on_a_branch_and_each_path_ends_where_its_parents_path_goes_on(log):
    lineage = Lineage(log, warn=ignore)
    on_branches = {run_id for path in lineage.branches().values() for run_id in path}
    assert on_branches == {run.run_id for run in lineage.runs}
    for run in lineage.runs:
        before = [] if run.parent_run_id is None else lineage.path(run.parent_run_id)
        assert lineage.path(run.run_id) == [*before, run.run_id]


@settings(max_examples=100, deadline=None)
@given(streams(120))
def test_a_log_without_branches_reduces_to_the_whole(log):
    unbranched = [
        RunStartedEvent(thread_id=e.thread_id, run_id=e.run_id, input=e.input) if isinstance(e, RunStartedEvent) else e
        for e in log
    ]
    lineage = Lineage(unbranched, warn=ignore)
    if lineage.latest is not None and isinstance(unbranched[0], RunStartedEvent):
        assert lineage.reduce_along(lineage.latest, warn=ignore) == reduce(unbranched, warn=ignore)
