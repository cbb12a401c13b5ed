"""``make_patch``: what it writes, how small it is, and that its work stays in bounds."""

import copy
import json
from typing import Any

import pytest

from aguila.stream.json_values import json_equal
from aguila.stream.patch import apply_patch, diff, make_patch


def rows(count: int) -> list[dict[str, Any]]:
    return [{"id": i, "title": f"row {i}", "done": i % 3 == 0, "tags": ["a", f"t{i % 7}"]} for i in range(count)]


def document_of_50_kb() -> dict[str, Any]:
    document = {"user": {"name": "Ada", "roles": ["admin"]}, "rows": rows(900), "page": {"index": 1, "size": 900}}
    assert len(json.dumps(document)) > 50_000
    return document


def patched(old: Any, new: Any) -> list[dict[str, Any]]:
    """Return the patch from old to new, after checking that it is right and that both are unchanged."""
    before = copy.deepcopy((old, new))
    patch = make_patch(old, new)
    assert json_equal(apply_patch(old, patch), new)
    assert json_equal((old, new), before)
    return patch


def edited(document: Any, edit: Any) -> Any:
    document = copy.deepcopy(document)
    edit(document)
    return document


WRITES = [
    ("a member that came", {"a": 1}, {"a": 1, "b": 2}, [{"op": "add", "path": "/b", "value": 2}]),
    ("a member that went", {"a": 1, "b": 2}, {"a": 1}, [{"op": "remove", "path": "/b"}]),
    ("a member that changed", {"a": 1, "b": 2}, {"a": 1, "b": 3}, [{"op": "replace", "path": "/b", "value": 3}]),
    ("a member that became null", {"a": 1}, {"a": None}, [{"op": "replace", "path": "/a", "value": None}]),
    ("true for 1", {"a": 1}, {"a": True}, [{"op": "replace", "path": "/a", "value": True}]),
    ("0 for false", [False, 5], [0, 5], [{"op": "replace", "path": "/0", "value": 0}]),
    ("an object for an array", {"a": []}, {"a": {}}, [{"op": "replace", "path": "/a", "value": {}}]),
    ("names that need escapes", {"a/b": {"m~n": 1}}, {"a/b": {"m~n": 2}},
     [{"op": "replace", "path": "/a~1b/m~0n", "value": 2}]),
    ("the empty name", {"": 1}, {"": 2}, [{"op": "replace", "path": "/", "value": 2}]),
    ("the whole, of another kind", {"a": 1}, [1], [{"op": "replace", "path": "", "value": [1]}]),
    ("the whole, from null", None, {"a": 1}, [{"op": "replace", "path": "", "value": {"a": 1}}]),
    ("the whole, to null", {"a": 1}, None, [{"op": "replace", "path": "", "value": None}]),
    ("the whole, a scalar", 1, 2, [{"op": "replace", "path": "", "value": 2}]),
    ("an element in front", [2, 3], [1, 2, 3], [{"op": "add", "path": "/0", "value": 1}]),
    ("an element at the end", [1, 2], [1, 2, 3], [{"op": "add", "path": "/2", "value": 3}]),
    ("an element that went", [1, 2, 3], [1, 3], [{"op": "remove", "path": "/1"}]),
    ("one of many that are equal went", [0, 0, 0, 0], [0, 0, 0], [{"op": "remove", "path": "/3"}]),
    ("one went and one came elsewhere", list("abcdefgh"), list("acdefXgh"),
     [{"op": "remove", "path": "/1"}, {"op": "add", "path": "/5", "value": "X"}]),
    ("a change within an element", [{"a": 1}, {"a": 2}], [{"a": 1}, {"a": 3}],
     [{"op": "replace", "path": "/1/a", "value": 3}]),
    ("a change within an element that moved up", [9, *"xyzuvw", {"id": "a", "text": "long enough to keep", "n": 1}],
     [*"xyzuvw", {"id": "a", "text": "long enough to keep", "n": 2}],
     [{"op": "remove", "path": "/0"}, {"op": "replace", "path": "/6/n", "value": 2}]),
    ("everything anew where that is shorter", {"a": 1, "b": 2, "c": 3, "d": 4}, {"x": 1},
     [{"op": "replace", "path": "", "value": {"x": 1}}]),
    ("an emptied list", {"a": list(range(50))}, {"a": []}, [{"op": "replace", "path": "/a", "value": []}]),
    ("only the part that is all new", {"keep": "k" * 200, "part": {"a": 1, "b": 2, "c": 3}},
     {"keep": "k" * 200, "part": {"d": 4, "e": 5}},
     [{"op": "replace", "path": "/part", "value": {"d": 4, "e": 5}}]),
]  # fmt: skip


@pytest.mark.parametrize(("shows", "old", "new", "patch"), WRITES, ids=[row[0] for row in WRITES])
def test_a_difference_is_written(shows: str, old: Any, new: Any, patch: list[dict[str, Any]]):
    assert patched(old, new) == patch
    assert json_equal(patched(old, new), patch)  # True is not 1


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ({}, {}),
        (None, None),
        ({"a": [1, {"b": None}]}, {"a": [1, {"b": None}]}),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ([{"a": 1, "b": 2}, 5], [{"b": 2, "a": 1}, 5]),
        (1, 1.0),
        ({"a": [1, 0]}, {"a": [1.0, -0.0]}),
        ({"\ud800": ["\udc00"]}, {"\ud800": ["\udc00"]}),
        ({"a": 2**80}, {"a": 2**80}),
        ({"a": (1, 2)}, {"a": [1, 2]}),
    ],
)
def test_the_same_json_gives_no_operations(old: Any, new: Any):
    assert make_patch(old, new) == []


@pytest.mark.parametrize("value", ["text", None, True, {"id": "new", "tags": []}])
@pytest.mark.parametrize("index", [0, 64, 501, 999])
def test_one_edit_of_a_list_of_a_thousand_is_one_operation(index: int, value: Any):
    for base in (list(range(1000)), rows(1000), [0] * 1000, [i % 2 == 0 for i in range(1000)]):
        inserted = edited(base, lambda items: items.insert(index, value))
        assert [op["op"] for op in patched(base, inserted)] == ["add"]
        assert [op["op"] for op in patched(inserted, base)] == ["remove"]
        changed = edited(base, lambda items: items.__setitem__(index, value))
        if not json_equal(changed, base):
            assert len(patched(base, changed)) == 1


@pytest.mark.parametrize("index", [0, 64, 500, 999])
def test_one_leaf_within_a_list_of_a_thousand_is_one_operation(index: int):
    base = rows(1000)
    changed = edited(base, lambda items: items[index]["tags"].append("new"))
    assert patched(base, changed) == [{"op": "add", "path": f"/{index}/tags/2", "value": "new"}]


EDITS = {
    "a leaf in the middle": lambda d: d["rows"][350].update(title="changed"),
    "a leaf at the start": lambda d: d["user"].update(name="Bob"),
    "a leaf at the end": lambda d: d["page"].update(size=0),
    "a boolean to its number": lambda d: d["rows"][0].update(done=1),
    "a member gone": lambda d: d["rows"][899].pop("done"),
    "a row gone": lambda d: d["rows"].pop(10),
    "a row come": lambda d: d["rows"].insert(690, {"id": "new"}),
    "a row gone and one come": lambda d: (d["rows"].pop(10), d["rows"].insert(600, {"id": "new"})),
}


@pytest.mark.parametrize("edit", EDITS.values(), ids=EDITS)
def test_a_small_change_of_50_kb_is_under_200_bytes(edit: Any):
    document = document_of_50_kb()
    changed = edited(document, edit)
    assert 0 < len(json.dumps(patched(document, changed))) < 200
    assert 0 < len(json.dumps(patched(changed, document))) < 200


def test_some_edits_far_apart_stay_some_operations():
    document = document_of_50_kb()

    def edit(d: dict[str, Any]) -> None:
        del d["rows"][5]
        d["rows"].insert(100, {"id": "new"})
        d["rows"][400]["title"] = "changed"
        del d["rows"][600:603]
        d["page"]["index"] = 2

    assert len(patched(document, edited(document, edit))) == 7


def test_rows_written_with_their_members_in_another_order_are_the_same_rows():
    document = rows(300)
    turned = [dict(reversed(row.items())) for row in document]
    del turned[7]
    turned.insert(200, {"id": "new"})
    assert [op["op"] for op in patched(document, turned)] == ["remove", "add"]


def test_a_list_with_nothing_in_common_is_replaced():
    old, new = rows(500), [f"other {i}" for i in range(500)]
    assert [(op["op"], op["path"]) for op in patched({"rows": old, "n": "x" * 99}, {"rows": new, "n": "x" * 99})] == [
        ("replace", "/rows")
    ]


def test_a_patch_is_never_much_longer_than_the_new_document():
    pairs = [(rows(200), rows(200)[::-1]), (document_of_50_kb(), {"rows": rows(3)}), ([1, 2] * 300, [2, 1, 1] * 200)]
    for old, new in pairs:
        assert len(json.dumps(patched(old, new))) < len(json.dumps(new)) + 100


@pytest.mark.parametrize("guarded", ["__proto__", "constructor/prototype"])
def test_no_path_leads_through_a_prototype_which_javascript_peers_refuse(guarded: str):
    def document(leaf: Any) -> Any:
        for name in reversed(guarded.split("/")):
            leaf = {name: leaf, "beside": "b" * 100}
        return {"top": leaf, "rest": "r" * 100}

    for old, new in ((1, 2), ({"a": 1}, {"a": 2}), ([1, 2], [1])):
        patch = patched(document(old), document(new))
        assert [op["op"] for op in patch] == ["replace"]
        assert guarded not in patch[0]["path"]
    assert make_patch(document([1]), document([1.0])) == []


@pytest.mark.parametrize("link", [lambda x: {"k": x}, lambda x: [x], lambda x: [1, {"k": x, "pad": "p"}, 2]])
@pytest.mark.parametrize("depth", [256, 3000])
def test_deep_documents(link: Any, depth: int):
    def chain(leaf: Any) -> Any:
        for _ in range(depth):
            leaf = link(leaf)
        return leaf

    old, new = chain("old"), chain("new")
    patch = make_patch(old, new)
    assert [(op["op"], op["value"]) for op in patch] == [("replace", "new")]
    assert json_equal(apply_patch(old, patch), new)


class Effort(diff._Diff):
    """Counts the bytes that were encoded."""

    made: "list[Effort]" = []  # noqa: RUF012

    def __init__(self) -> None:
        super().__init__()
        self.spent = 0
        Effort.made.append(self)

    def encode(self, encoder: Any, value: Any) -> bytes | None:
        before = self.encode_budget
        encoded = super().encode(encoder, value)
        self.spent += before - self.encode_budget
        return encoded


def test_the_work_on_a_deep_document_does_not_grow_with_its_depth(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(diff, "_Diff", Effort)
    Effort.made.clear()

    def chain(leaf: Any) -> Any:
        for _ in range(600):
            leaf = [1, leaf, 2]
        return leaf

    old, new = chain("old" * 1000), chain("new" * 1000)
    assert len(make_patch(old, new)) == 1
    size = len(json.dumps(new))
    assert Effort.made[0].spent < 70 * size  # looking at all of it on every level would be some 300 times


def test_equal_elements_in_great_numbers_are_aligned_with_bounded_effort(monkeypatch: pytest.MonkeyPatch):
    pairs = 0

    def counting(ends: list[int], j: int) -> int:
        nonlocal pairs
        pairs += 1
        return bisect_left(ends, j)

    bisect_left = diff.bisect_left
    monkeypatch.setattr(diff, "bisect_left", counting)
    old, new = [1, *[0, 5] * 2500, 2], [3, *[5, 0] * 2500, 4]
    patched(old, new)
    assert 0 < pairs <= 2 * diff._MAX_ALIGN_PAIRS  # all pairs would be 12 million


def test_values_that_cannot_be_encoded_are_compared_all_the_same():
    old = [{"id": i, "text": "\ud800"} for i in range(50)]
    new = edited(old, lambda items: items[25].update(text="\udc00"))
    assert patched(old, new) == [{"op": "replace", "path": "/25/text", "value": "\udc00"}]
    assert patched({"a": 2**80}, {"a": 2**80 + 1}) == [{"op": "replace", "path": "/a", "value": 2**80 + 1}]


def test_a_number_that_is_no_json_is_not_taken_for_null():
    assert make_patch({"a": None, "b": 1}, {"a": float("inf"), "b": 1}) == [
        {"op": "replace", "path": "/a", "value": float("inf")}
    ]


def test_the_values_of_a_patch_are_those_of_the_new_document():
    new = {"a": {"b": [1]}}
    assert make_patch({}, new)[0]["value"] in (new, new["a"])
    assert make_patch({"x": 1}, {"x": 1, **new})[0]["value"] is new["a"]
