"""Laws of JSON Patch: made patches apply, applying does not change the old document, and ``jsonpatch`` agrees."""

import copy
from collections import Counter
from random import Random
from typing import Any, NamedTuple

import jsonpatch
import jsonpointer
import msgspec
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from aguila.codec.pointer import format_pointer
from aguila.errors import PatchError
from aguila.stream.json_values import json_equal
from aguila.stream.patch import apply_patch, make_patch

# Few names and values, so that chance finds them again; among them those that look like indexes, need escapes,
# or are equal in Python and not in JSON.
MEMBER_NAMES = ["a", "b", "c", "0", "1", "01", "-", "", "a/b", "m~n", "~1", "é"]
SCALAR_VALUES = [None, True, False, 0, 1, 2, 0.0, 1.0, -1, 2.5, "", "x", "1", "é"]
NAMES = st.sampled_from(MEMBER_NAMES)
SCALARS = st.sampled_from(SCALAR_VALUES)
DOCUMENTS = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=5) | st.dictionaries(NAMES, inner, max_size=4), max_leaves=14
)


@st.composite
def near_copies(draw: st.DrawFn, document: Any) -> Any:
    """Return the document with some edits, each made in place in a copy: the pairs that real streams have."""
    root = [copy.deepcopy(document)]
    for _ in range(draw(st.integers(0, 4))):
        parent: Any = root
        key: Any = 0
        while isinstance(parent[key], dict | list) and parent[key] and draw(st.integers(0, 4)) > 0:
            parent = parent[key]
            key = draw(st.sampled_from(sorted(parent) if isinstance(parent, dict) else range(len(parent))))
        target = parent[key]
        edit = draw(st.sampled_from(["replace", "insert", "remove", "double"]))
        if edit == "insert" and isinstance(target, list):
            target.insert(draw(st.integers(0, len(target))), draw(DOCUMENTS))
        elif edit == "insert" and isinstance(target, dict):
            target[draw(NAMES)] = draw(DOCUMENTS)
        elif edit == "remove" and parent is not root:
            del parent[key]
        elif edit == "double" and isinstance(parent, list) and parent is not root:
            parent.insert(key, copy.deepcopy(target))
        else:
            parent[key] = draw(DOCUMENTS)
    return root[0]


PAIRS = DOCUMENTS.flatmap(lambda old: st.tuples(st.just(old), near_copies(old) | DOCUMENTS))


# Patches are drawn by a seeded generator of our own rather than by hypothesis: they are short enough to read
# without shrinking, and thirty times as many fit in the same time.


def random_document(r: Random, depth: int = 0) -> Any:
    kind = r.random()
    if depth > 3 or kind < 0.4 - 0.3 * (depth == 0):
        return r.choice(SCALAR_VALUES)
    if kind < 0.7:
        return [random_document(r, depth + 1) for _ in range(r.randrange(5))]
    return {r.choice(MEMBER_NAMES): random_document(r, depth + 1) for _ in range(r.randrange(4))}


def random_pointer(r: Random, document: Any) -> str:
    """Return a pointer that usually exists in the document, or nearly does."""
    tokens: list[Any] = []
    node = document
    while r.random() < 0.7:
        stray = r.random() < 0.06
        if isinstance(node, dict) and node and not stray:
            tokens.append(r.choice(list(node)))
            node = node[tokens[-1]]
        elif isinstance(node, list) and not stray:
            tokens.append(r.randint(0, len(node)))
            node = node[tokens[-1]] if tokens[-1] < len(node) else None
        else:
            tokens.append(r.choice([*MEMBER_NAMES, "+1", "-1", " 0", "1_0", "٣", "²", "00", "9" * 30]))
            break
    text = format_pointer(tokens)
    return r.choice(["a", "~", "/~", "/a~2", text + "~"]) if r.random() < 0.01 else text


def random_case(seed: int) -> tuple[Any, list[dict[str, Any]]]:
    """Return a document and a patch. Each operation is made for the document that it is applied to."""
    r = Random(seed)
    document = random_document(r)
    meets = document
    patch: list[dict[str, Any]] = []
    for _ in range(r.randint(1, 8)):
        name = r.choice(["add", "add", "remove", "replace", "move", "copy", "test"])
        operation = {"op": name, "path": random_pointer(r, meets)}
        if name in ("move", "copy"):
            operation["from"] = random_pointer(r, meets)
        elif name != "remove":
            operation["value"] = random_document(r, 2)
        if name == "test" and r.random() < 0.8:
            there, value = answer(
                apply_patch, meets, [{"op": "copy", "from": operation["path"], "path": ""}], PatchError
            )
            if there:
                operation["value"] = value
        if r.random() < 0.01:
            del operation[r.choice(list(operation))]
        applied, result = answer(apply_patch, meets, [operation], PatchError)
        if applied:
            meets = result
        elif r.random() < 0.7:
            continue  # mostly go on as if it had not been written, so that longer patches are tried
        patch.append(operation)
    return document, copy.deepcopy(patch)


SEEDS = st.integers(0, 2**40)


def answer(apply: Any, document: Any, patch: Any, failures: Any) -> tuple[bool, Any]:
    try:
        return True, apply(document, patch)
    except failures as failure:
        return False, failure


class Exemption(NamedTuple):
    """A case in which the oracle is known to differ, and the reason for our result."""

    name: str
    reason: str
    document: Any
    patch: list[dict[str, Any]]
    ours: Any  # the result, or PatchError
    theirs: Any  # the result, or an exception of jsonpatch


EXEMPTIONS = [
    Exemption(
        name="removing the whole document",
        reason="the reference leaves null (reference-client 7.3); jsonpatch refuses. RFC 6902 does not exclude it",
        document={"a": 1},
        patch=[{"op": "remove", "path": ""}],
        ours=None,
        theirs=jsonpatch.JsonPatchConflict,
    ),
    Exemption(
        name="a path through __proto__",
        reason="the reference refuses it (reference-client 7.3); to jsonpatch it is a name like any other",
        document={},
        patch=[{"op": "add", "path": "/__proto__", "value": 1}],
        ours=PatchError,
        theirs={"__proto__": 1},
    ),
    Exemption(
        name="a path through constructor/prototype",
        reason="as for __proto__",
        document={"constructor": {}},
        patch=[{"op": "add", "path": "/constructor/prototype", "value": 1}],
        ours=PatchError,
        theirs={"constructor": {"prototype": 1}},
    ),
]


ORACLE_FAILURES = (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException)


@settings(deadline=None, max_examples=4000)
@given(SEEDS)
def test_random_patches_agree_with_jsonpatch(seed: int):
    document, patch = random_case(seed)
    if any(operation.get("op") == "remove" and operation.get("path") == "" for operation in patch):
        return  # the first exemption; the names of the others are not drawn
    applied, ours = answer(apply_patch, document, patch, PatchError)
    their_applied, theirs = answer(jsonpatch.apply_patch, document, patch, ORACLE_FAILURES)
    assert applied == their_applied, (ours, theirs)
    if applied:
        assert json_equal(ours, theirs), (ours, theirs)


@pytest.mark.parametrize("row", EXEMPTIONS, ids=[row.name for row in EXEMPTIONS])
def test_where_jsonpatch_answers_otherwise(row: Exemption):
    """Each row is still needed: when the library changes its answer, this says so."""
    for apply, expected, failures in (
        (apply_patch, row.ours, PatchError),
        (jsonpatch.apply_patch, row.theirs, ORACLE_FAILURES),
    ):
        applied, result = answer(apply, row.document, row.patch, failures)
        if isinstance(expected, type):
            assert not applied
            assert isinstance(result, expected)
        else:
            assert applied
            assert json_equal(result, expected)


def test_the_random_patches_reach_every_operation_with_success_and_failure():
    seen: Counter[tuple[str, bool]] = Counter()
    for seed in range(1000):
        document, patch = random_case(seed)
        applied, result = answer(apply_patch, document, patch, PatchError)
        failed = len(patch) if applied else result.index
        seen.update((operation.get("op", "none"), True) for operation in patch[:failed])
        seen.update((operation.get("op", "none"), False) for operation in patch[failed : failed + 1])
    for name in ("add", "remove", "replace", "move", "copy", "test"):
        assert seen[name, True] >= 50, seen
        assert seen[name, False] >= 20, seen


@settings(deadline=None, max_examples=1000)
@given(SEEDS)
def test_the_old_document_and_the_patch_stay_as_they_were_whether_it_applies_or_not(seed: int):
    document, patch = random_case(seed)
    before = copy.deepcopy((document, patch))
    answer(apply_patch, document, patch, PatchError)
    assert json_equal(document, before[0])
    assert json_equal(patch, before[1])


@settings(deadline=None, max_examples=1000)
@given(SEEDS)
def test_one_application_is_as_good_as_one_for_each_operation(seed: int):
    """Owned containers are not visible from outside."""
    document, patch = random_case(seed)
    applied, at_once = answer(apply_patch, document, patch, PatchError)
    one_by_one = document
    for index, operation in enumerate(patch):
        done, result = answer(apply_patch, one_by_one, [copy.deepcopy(operation)], PatchError)
        if not done:
            assert not applied
            assert at_once.index == index
            assert at_once.message == result.message
            return
        one_by_one = copy.deepcopy(result)
    assert applied
    assert json_equal(at_once, one_by_one)


@settings(deadline=None, max_examples=300)
@given(SEEDS)
def test_every_view_on_the_way_stays_valid(seed: int):
    views: list[tuple[Any, Any]] = []
    document, patch = random_case(seed)
    for operation in patch:
        applied, result = answer(apply_patch, document, [operation], PatchError)
        if applied:
            views.append((document, copy.deepcopy(document)))
            document = result
    for view, before in views:
        assert json_equal(view, before)


@settings(deadline=None, max_examples=800)
@given(PAIRS)
def test_what_is_made_applies_and_gives_the_new_document(pair: tuple[Any, Any]):
    old, new = pair
    before = copy.deepcopy(pair)
    patch = make_patch(old, new)
    assert json_equal(apply_patch(old, patch), new)
    assert json_equal([old, new], list(before))
    assert (patch == []) == json_equal(old, new)


FEW = st.lists(st.sampled_from([True, 1, False, 0, "x", [1], [True], {"a": 1, "b": 2}, {"b": 2, "a": 1}]), max_size=12)


def longest_common(old: list[Any], new: list[Any]) -> int:
    """Return the length of the longest common subsequence, by the table that takes a square of work."""
    above = [0] * (len(new) + 1)
    for a in old:
        row = [0]
        for j, b in enumerate(new):
            row.append(above[j] + 1 if json_equal(a, b) else max(row[j], above[j + 1]))
        above = row
    return above[-1]


@settings(deadline=None, max_examples=300)
@given(FEW, FEW)
def test_lists_of_elements_that_repeat_are_aligned(old: list[Any], new: list[Any]):
    """The long element makes a replacement of the list too large, so that the patch changes its elements."""
    old, new = ["long" * 500, *old], ["long" * 500, *new]
    patch = make_patch(old, new)
    assert json_equal(apply_patch(old, patch), new)
    assert all(operation["path"] for operation in patch)
    assert len(patch) <= len(old) + len(new) - 2 * longest_common(old, new)


@settings(deadline=None, max_examples=150)
@given(PAIRS)
def test_what_is_made_applies_at_jsonpatch_too(pair: tuple[Any, Any]):
    old, new = pair
    assert json_equal(jsonpatch.apply_patch(old, make_patch(old, new)), new)


@settings(deadline=None, max_examples=150)
@given(PAIRS)
@example(({"a": None, "b": None, "c": None, "0": None}, {"b": None, "c": None}))  # commas were counted twice
def test_a_patch_is_no_longer_than_replacing_everything(pair: tuple[Any, Any]):
    old, new = pair
    everything = [{"op": "replace", "path": "", "value": new}]
    # Sizes are estimates: a character beyond ASCII counts as one byte, also in the paths of removed members.
    slack = msgspec.json.encode([old, new]).count("é".encode())
    assert len(msgspec.json.encode(make_patch(old, new))) <= len(msgspec.json.encode(everything)) + slack


@settings(deadline=None, max_examples=100)
@given(st.lists(DOCUMENTS, max_size=30), st.integers(0, 30), DOCUMENTS)
def test_one_element_more_or_less_is_one_operation(items: list[Any], index: int, value: Any):
    index = min(index, len(items))
    longer = [*items[:index], value, *items[index:]]
    assert len(make_patch(items, longer)) == 1
    assert len(make_patch(longer, items)) == 1


@settings(deadline=None, max_examples=150)
@given(PAIRS)
def test_being_the_same_json_is_being_written_alike(pair: tuple[Any, Any]):
    """An independent reading of ``json_equal``: the canonical text, with integral numbers written one way."""

    def canonical(value: Any) -> Any:
        if isinstance(value, list):
            return [canonical(item) for item in value]
        if isinstance(value, dict):
            return {name: canonical(item) for name, item in value.items()}
        return float(value) if type(value) is int else value

    old, new = (msgspec.json.encode(canonical(side), order="deterministic") for side in pair)
    assert json_equal(*pair) == (old == new)
    assert json_equal(*reversed(pair)) == (old == new)
