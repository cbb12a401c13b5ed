"""``apply_patch`` case by case: RFC 6902 and 6901, with the readings of SNAP-3, SNAP-7, SNAP-9 and SNAP-11."""

import copy
import json
from typing import Any, NamedTuple

import pytest

from aguila.errors import AguilaError, PatchError
from aguila.stream.json_values import json_equal
from aguila.stream.patch import apply, apply_patch


def add(path: str, value: Any) -> dict[str, Any]:
    return {"op": "add", "path": path, "value": value}


def replace(path: str, value: Any) -> dict[str, Any]:
    return {"op": "replace", "path": path, "value": value}


def expect(path: str, value: Any) -> dict[str, Any]:
    return {"op": "test", "path": path, "value": value}


def remove(path: str) -> dict[str, Any]:
    return {"op": "remove", "path": path}


def move(source: str, path: str) -> dict[str, Any]:
    return {"op": "move", "from": source, "path": path}


def copy_(source: str, path: str) -> dict[str, Any]:
    return {"op": "copy", "from": source, "path": path}


class Applies(NamedTuple):
    shows: str
    document: Any
    patch: list[Any]
    result: Any


class Fails(NamedTuple):
    shows: str
    document: Any
    patch: Any
    index: int | None  # the operation that is to blame
    says: str  # part of the message


# Names that need escapes or care.
AWKWARD = {"list": ["x", "y"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, 'k"l': 6, " ": 7, "m~n": 8}

APPLIES = [
    # An empty patch
    Applies("an empty patch keeps an object (SNAP-3)", {"a": 1}, [], {"a": 1}),
    Applies("an empty patch keeps an array", [1], [], [1]),
    Applies("an empty patch keeps a string", "text", [], "text"),
    Applies("an empty patch keeps null", None, [], None),
    # add: members
    Applies("add makes a member", {"a": 1}, [add("/b", 2)], {"a": 1, "b": 2}),
    Applies("add to an empty object", {}, [add("/a", "x")], {"a": "x"}),
    Applies("add replaces a member that is there", {"a": 1}, [add("/a", 2)], {"a": 2}),
    Applies("add replaces a member by one of another kind", {"a": {"b": 1}}, [add("/a", [1])], {"a": [1]}),
    Applies("add makes a nested member", {"a": {"b": {}}}, [add("/a/b/c", True)], {"a": {"b": {"c": True}}}),
    Applies("add of null is a member that is null", {}, [add("/a", None)], {"a": None}),
    Applies("add over null", {"a": None}, [add("/a", 1)], {"a": 1}),
    Applies("add of false, 0 and empty text are values like any other (PY-14)",
            {}, [add("/f", False), add("/z", 0), add("/e", "")], {"f": False, "z": 0, "e": ""}),
    Applies("an empty token names the member with the empty name", {}, [add("/", 1)], {"": 1}),
    Applies("two empty tokens", {"": {}}, [add("//", 1)], {"": {"": 1}}),
    Applies("a trailing slash ends in the empty name", {"a": {}}, [add("/a/", 1)], {"a": {"": 1}}),
    Applies("digits name members of objects", {"a": 1}, [add("/0", 2)], {"a": 1, "0": 2}),
    Applies("leading zeros are fine in member names", {}, [add("/007", 1)], {"007": 1}),
    Applies("a dash names a member of an object", {}, [add("/-", 1)], {"-": 1}),
    Applies("names are compared by code point, not normalised", {"\u00e9": 1}, [add("/e\u0301", 2)],
            {"\u00e9": 1, "e\u0301": 2}),
    Applies("other scripts and emoji in names", {}, [add("/名🙂", 1)], {"名🙂": 1}),
    Applies("names differ by case", {"foo": 1}, [add("/FOO", 2)], {"foo": 1, "FOO": 2}),
    # add: elements
    Applies("add at index 0 shifts the rest", [2, 3], [add("/0", 1)], [1, 2, 3]),
    Applies("add in the middle", [1, 3], [add("/1", 2)], [1, 2, 3]),
    Applies("add at the length appends", [1, 2], [add("/2", 3)], [1, 2, 3]),
    Applies("add to an empty array at 0", [], [add("/0", 1)], [1]),
    Applies("a dash appends", [1, 2], [add("/-", 3)], [1, 2, 3]),
    Applies("a dash appends to an empty array", {"a": []}, [add("/a/-", 1)], {"a": [1]}),
    Applies("an array is added as one element", [1], [add("/-", [2, 3])], [1, [2, 3]]),
    Applies("a dash appends each time", [], [add("/-", 1), add("/-", 2)], [1, 2]),
    Applies("elements of nested arrays", [[1], [2]], [add("/1/0", 0)], [[1], [0, 2]]),
    Applies("into an object within an array", [{"a": 1}], [add("/0/b", 2)], [{"a": 1, "b": 2}]),
    Applies("index of two digits", list(range(12)), [replace("/11", "x")], [*range(11), "x"]),
    Applies("index beyond the small ones", list(range(1000)), [replace("/999", "x")], [*range(999), "x"]),
    # the whole document
    Applies("add to the root replaces the document", {"a": 1}, [add("", {"b": 2})], {"b": 2}),
    Applies("replace of the root", {"a": 1}, [replace("", [1])], [1]),
    Applies("the root may become null", {"a": 1}, [replace("", None)], None),
    Applies("the root of a null document may be replaced", None, [replace("", {"a": 1})], {"a": 1}),
    Applies("a scalar document may be replaced", "x", [add("", "y")], "y"),
    Applies("remove of the root leaves null (reference-client 7.3)", {"a": 1}, [remove("")], None),
    Applies("after the root is replaced, paths lead into the new one", [], [replace("", {}), add("/a", 1)], {"a": 1}),
    Applies("test of the root", {"a": [1]}, [expect("", {"a": [1]})], {"a": [1]}),
    Applies("copy to the root", {"a": {"b": 1}}, [copy_("/a", "")], {"b": 1}),
    Applies("move to the root", {"a": {"b": 1}, "c": 2}, [move("/a", "")], {"b": 1}),
    Applies("copy of the root into itself", {"a": 1}, [copy_("", "/b")], {"a": 1, "b": {"a": 1}}),
    Applies("move of the root onto itself does nothing", {"a": 1}, [move("", "")], {"a": 1}),
    # remove
    Applies("remove of a member", {"a": 1, "b": 2}, [remove("/a")], {"b": 2}),
    Applies("remove of the last member", {"a": 1}, [remove("/a")], {}),
    Applies("remove of a member that is null", {"a": None}, [remove("/a")], {}),
    Applies("remove of an element closes the gap", [1, 2, 3], [remove("/1")], [1, 3]),
    Applies("remove twice at one index", [1, 2, 3], [remove("/0"), remove("/0")], [3]),
    Applies("remove within", {"a": [{"b": 1, "c": 2}]}, [remove("/a/0/b")], {"a": [{"c": 2}]}),
    Applies("remove and add again", {"a": 1}, [remove("/a"), add("/a", 2)], {"a": 2}),
    # replace
    Applies("replace of a member", {"a": 1, "b": 2}, [replace("/a", 3)], {"a": 3, "b": 2}),
    Applies("replace of an element", [1, 2, 3], [replace("/1", "x")], [1, "x", 3]),
    Applies("replace by null", {"a": 1}, [replace("/a", None)], {"a": None}),
    Applies("replace of null", {"a": None}, [replace("/a", 1)], {"a": 1}),
    Applies("replace of a container by a scalar", {"a": {"b": [1]}}, [replace("/a/b", 0)], {"a": {"b": 0}}),
    Applies("replace of a member named like an index", {"1": "a"}, [replace("/1", "b")], {"1": "b"}),
    # move
    Applies("move renames a member", {"a": 1, "b": 2}, [move("/a", "/c")], {"b": 2, "c": 1}),
    Applies("move over a member", {"a": 1, "b": 2}, [move("/a", "/b")], {"b": 1}),
    Applies("move onto itself does nothing", {"a": 1}, [move("/a", "/a")], {"a": 1}),
    Applies("move of an element onto itself does nothing", [1, 2], [move("/1", "/1")], [1, 2]),
    Applies("move of null", {"a": None}, [move("/a", "/b")], {"b": None}),
    Applies("the target of a move counts without the source", [1, 2, 3], [move("/0", "/2")], [2, 3, 1]),
    Applies("move to the front", [1, 2, 3], [move("/2", "/0")], [3, 1, 2]),
    Applies("move to the end", [1, 2, 3], [move("/0", "/-")], [2, 3, 1]),
    Applies("move past the next element, which moves up", [1, [2]], [move("/0", "/1")], [[2], 1]),
    Applies("move from an array to an object", {"a": [1, 2], "b": {}}, [move("/a/0", "/b/x")],
            {"a": [2], "b": {"x": 1}}),
    Applies("move up over its own parent", {"a": {"b": 1}}, [move("/a/b", "/a")], {"a": 1}),
    Applies("a name that only begins alike is no child", {"a": 1, "ab": {}}, [move("/a", "/ab/c")], {"ab": {"c": 1}}),
    # copy
    Applies("copy of a member", {"a": 1}, [copy_("/a", "/b")], {"a": 1, "b": 1}),
    Applies("copy of an element inserts", [1, 2], [copy_("/1", "/0")], [2, 1, 2]),
    Applies("copy of a container", {"a": {"b": [1]}}, [copy_("/a/b", "/c")], {"a": {"b": [1]}, "c": [1]}),
    Applies("copy of null", {"a": None}, [copy_("/a", "/b")], {"a": None, "b": None}),
    Applies("copy into its own child is legal", {"a": {"b": 1}}, [copy_("/a", "/a/c")], {"a": {"b": 1, "c": {"b": 1}}}),
    Applies("copy onto itself in an array makes two", [1], [copy_("/0", "/0")], [1, 1]),
    # test
    Applies("test of a string", {"a": "x"}, [expect("/a", "x")], {"a": "x"}),
    Applies("test of null", {"a": None}, [expect("/a", None)], {"a": None}),
    Applies("test of true and false", [True, False], [expect("/0", True), expect("/1", False)], [True, False]),
    Applies("numbers are equal by value: 1 is 1.0", {"a": 1}, [expect("/a", 1.0)], {"a": 1}),
    Applies("zero is minus zero", [0], [expect("/0", -0.0)], [0]),
    Applies("test is deep", {"a": [{"b": [1, {}]}]}, [expect("/a", [{"b": [1, {}]}])], {"a": [{"b": [1, {}]}]}),
    Applies("the order of members is free", {"a": {"x": 1, "y": 2}}, [expect("/a", {"y": 2, "x": 1})],
            {"a": {"x": 1, "y": 2}}),
    Applies("test of empty containers", {"a": {}, "b": []}, [expect("/a", {}), expect("/b", [])], {"a": {}, "b": []}),
    Applies("test sees the operations before it", {}, [add("/a", [1]), add("/a/-", 2), expect("/a", [1, 2])],
            {"a": [1, 2]}),
    Applies("test between changes", {"n": 1}, [expect("/n", 1), replace("/n", 2), expect("/n", 2)], {"n": 2}),
    # escapes and awkward names
    Applies("~1 is a slash", {"a/b": 1}, [replace("/a~1b", 2)], {"a/b": 2}),
    Applies("~0 is a tilde", {"m~n": 1}, [replace("/m~0n", 2)], {"m~n": 2}),
    Applies("~01 is a tilde and a one, not a slash", {"~1": 1}, [expect("/~01", 1)], {"~1": 1}),
    Applies("~10 is a slash and a zero", {"/0": 1}, [expect("/~10", 1)], {"/0": 1}),
    Applies("awkward names are found", AWKWARD,
            [expect("/list/0", "x"), expect("/", 0), expect("/a~1b", 1), expect("/c%d", 2), expect("/e^f", 3),
             expect("/g|h", 4), expect("/i\\j", 5), expect('/k"l', 6), expect("/ ", 7), expect("/m~0n", 8)], AWKWARD),
    Applies("percent signs are not decoded", {"%25": 1, "%": 2}, [remove("/%25")], {"%": 2}),
    Applies("a line break may be in a name", {"a\nb": 1}, [replace("/a\nb", 2)], {"a\nb": 2}),
    Applies("half a surrogate may be in a name and a value", {"\ud800": 1}, [replace("/\ud800", "\udc00")],
            {"\ud800": "\udc00"}),
    Applies("constructor alone is a name like any other", {}, [add("/constructor", {"name": 1})],
            {"constructor": {"name": 1}}),
    Applies("and so is prototype", {}, [add("/prototype", {}), add("/prototype/constructor", 1)],
            {"prototype": {"constructor": 1}}),
    # members that are not the operation's (PROC-5)
    Applies("extra members are ignored", {"a": 1}, [{**remove("/a"), "value": 5, "note": "why", "x-id": 7}], {}),
    Applies("a spare 'from' is ignored even if it leads nowhere", {}, [{**add("/a", 1), "from": "/nowhere"}], {"a": 1}),
    # several operations
    Applies("operations see what those before them did",
            {"a": {}}, [add("/a/b", []), add("/a/b/-", {}), add("/a/b/0/c", 1), move("/a/b/0/c", "/d")],
            {"a": {"b": [{}]}, "d": 1}),
    Applies("a copy and its source part ways", {"a": {"x": [1]}},
            [copy_("/a", "/b"), add("/b/x/-", 2), add("/a/y", 3)], {"a": {"x": [1], "y": 3}, "b": {"x": [1, 2]}}),
    Applies("also where the source was written to before", {"a": {"x": [1]}},
            [add("/a/x/-", 2), copy_("/a", "/b"), add("/a/x/-", 3), add("/b/x/-", 4)],
            {"a": {"x": [1, 2, 3]}, "b": {"x": [1, 2, 4]}}),
    Applies("also within a copy of the whole", {"a": [1]},
            [add("/a/-", 2), copy_("", "/all"), add("/a/-", 3), add("/all/a/-", 4)],
            {"a": [1, 2, 3], "all": {"a": [1, 2, 4]}}),
    Applies("a value added twice is two values", {},
            [add("/a", shared := [0]), add("/b", shared), add("/a/-", 1), add("/b/-", 2)], {"a": [0, 1], "b": [0, 2]}),
    Applies("what was moved can be written to", {"a": {"x": [1]}},
            [add("/a/x/-", 2), move("/a", "/b"), add("/b/x/-", 3)], {"b": {"x": [1, 2, 3]}}),
    Applies("what was moved and then copied parts ways too", {"a": [1]},
            [add("/a/-", 2), move("/a", "/b"), copy_("/b", "/c"), add("/b/-", 3)], {"b": [1, 2, 3], "c": [1, 2]}),
]  # fmt: skip

FAILS = [
    # paths that lead nowhere
    Fails("add below a member that is missing", {"a": {}}, [add("/b/c", 1)], 0, "no member 'b'"),
    Fails("add below null", {"a": None}, [add("/a/b", 1)], 0, "null"),
    Fails("add below a string", {"a": "text"}, [add("/a/0", 1)], 0, "a string"),
    Fails("add below a number", {"a": 5}, [add("/a/b", 1)], 0, "a number"),
    Fails("add below a boolean", {"a": True}, [add("/a/b", 1)], 0, "a boolean"),
    Fails("remove of a missing member", {"a": 1}, [remove("/b")], 0, "no member 'b'"),
    Fails("remove within a missing member", {"a": 1}, [remove("/b/c")], 0, "no member 'b'"),
    Fails("remove twice", {"a": 1}, [remove("/a"), remove("/a")], 1, "no member 'a'"),
    Fails("remove at the length", [1, 2], [remove("/2")], 0, "out of range"),
    Fails("remove from an empty array", [], [remove("/0")], 0, "out of range"),
    Fails("replace of a missing member", {"a": 1}, [replace("/b", 1)], 0, "no member 'b'"),
    Fails("replace at the length", [1], [replace("/1", 2)], 0, "out of range"),
    Fails("add beyond the length", [1], [add("/2", 3)], 0, "out of range"),
    Fails("move of what is missing", {"a": 1}, [move("/b", "/c")], 0, "no member 'b'"),
    Fails("move of what is missing onto itself", {"a": 1}, [move("/b", "/b")], 0, "no member 'b'"),
    Fails("move to below what is missing", {"a": 1}, [move("/a", "/b/c")], 0, "no member 'b'"),
    Fails("move to an index that the move itself takes away", [1, 2], [move("/0", "/2")], 0, "out of range"),
    Fails("copy of what is missing", {"a": 1}, [copy_("/b", "/c")], 0, "no member 'b'"),
    Fails("copy of an element out of range", [1], [copy_("/1", "/0")], 0, "out of range"),
    Fails("copy to below what is missing", {"a": 1}, [copy_("/a", "/b/c")], 0, "no member 'b'"),
    Fails("test of a missing member", {"a": 1}, [expect("/b", None)], 0, "no member 'b'"),
    Fails("test of an element out of range", [1], [expect("/1", None)], 0, "out of range"),
    Fails("null is not absent", {"a": None}, [replace("/a/b", 1)], 0, "null"),
    # a document without members
    Fails("add to a null document", None, [add("/a", 1)], 0, "null"),
    Fails("add to a number", 5, [add("/a", 1)], 0, "a number"),
    Fails("add to a string", "text", [add("/0", "x")], 0, "a string"),
    Fails("test within a string", "text", [expect("/0", "t")], 0, "a string"),
    Fails("remove from a boolean", False, [remove("/a")], 0, "a boolean"),
    Fails("after the root was removed, nothing is left to add to", {}, [remove(""), add("/a", 1)], 1, "null"),
    # array indexes (RFC 6901 section 4)
    Fails("a leading zero", [1, 2], [replace("/01", 3)], 0, "not an array index"),
    Fails("a leading zero in add, which the reference takes", [1, 2], [add("/01", 3)], 0, "not an array index"),
    Fails("two zeros", [1], [expect("/00", 1)], 0, "not an array index"),
    Fails("a minus sign", [1, 2], [remove("/-1")], 0, "not an array index"),
    Fails("a plus sign", [1, 2], [remove("/+1")], 0, "not an array index"),
    Fails("a space", [1, 2], [remove("/ 1")], 0, "not an array index"),
    Fails("a name", [1, 2], [add("/name", 1)], 0, "not an array index"),
    Fails("an empty token", [1], [add("/", 1)], 0, "not an array index"),
    Fails("an exponent", [1, 2], [expect("/1e0", 2)], 0, "not an array index"),
    Fails("a fraction", [1, 2], [expect("/1.0", 2)], 0, "not an array index"),
    Fails("an underscore, which int() takes", list(range(20)), [expect("/1_0", 10)], 0, "not an array index"),
    Fails("hexadecimal", [1, 2], [expect("/0x1", 2)], 0, "not an array index"),
    Fails("digits of another script, which int() takes", [1, 2, 3, 4], [remove("/٣")], 0, "not an array index"),
    Fails("a superscript, which isdigit() takes", [1, 2, 3], [remove("/²")], 0, "not an array index"),
    Fails("more digits than int() takes", [1], [remove("/" + "9" * 5000)], 0, "out of range"),
    Fails("a name on the way through an array", {"a": [{"b": 1}]}, [remove("/a/b")], 0, "not an array index"),
    # the dash is for add only
    Fails("remove at the dash", [1], [remove("/-")], 0, "not an array index"),
    Fails("replace at the dash", [1], [replace("/-", 2)], 0, "not an array index"),
    Fails("test at the dash", [1], [expect("/-", 1)], 0, "not an array index"),
    Fails("move from the dash", [1], [move("/-", "/0")], 0, "not an array index"),
    Fails("copy from the dash", [1], [copy_("/-", "/0")], 0, "not an array index"),
    Fails("a dash on the way", [[1]], [add("/-/0", 1)], 0, "not an array index"),
    # test compares types strictly
    Fails("another value", {"a": 1}, [expect("/a", 2)], 0, "test failed"),
    Fails("a number is not its text", {"a": 10}, [expect("/a", "10")], 0, "test failed"),
    Fails("true is not 1 (PY-13)", {"a": True}, [expect("/a", 1)], 0, "test failed"),
    Fails("1 is not true", {"a": 1}, [expect("/a", True)], 0, "test failed"),
    Fails("false is not 0", {"a": False}, [expect("/a", 0)], 0, "test failed"),
    Fails("0.0 is not false", {"a": 0.0}, [expect("/a", False)], 0, "test failed"),
    Fails("true is not 1 deep within", {"a": [{"b": True}]}, [expect("/a", [{"b": 1}])], 0, "test failed"),
    Fails("null is not false", {"a": None}, [expect("/a", False)], 0, "test failed"),
    Fails("null is not empty", {"a": None}, [expect("/a", "")], 0, "test failed"),
    Fails("an empty object is not an empty array", {"a": {}}, [expect("/a", [])], 0, "test failed"),
    Fails("an array has an order", [[1, 2]], [expect("/0", [2, 1])], 0, "test failed"),
    Fails("an array has a length", [[1, 2]], [expect("/0", [1])], 0, "test failed"),
    Fails("an object with one member more", [{"a": 1}], [expect("/0", {"a": 1, "b": 2})], 0, "test failed"),
    Fails("an object with another name", [{"a": 1}], [expect("/0", {"b": 1})], 0, "test failed"),
    Fails("a scalar is not a container", [1], [expect("/0", [1])], 0, "test failed"),
    Fails("text differs by case", ["a"], [expect("/0", "A")], 0, "test failed"),
    Fails("a failed test undoes the rest (SNAP-9)", {"a": 1}, [add("/b", 2), expect("/a", 2)], 1, "test failed"),
    # move into its own child (SNAP-11)
    Fails("into a child", {"a": {"b": {}}}, [move("/a", "/a/b")], 0, "own child"),
    Fails("into a grandchild", {"a": {"b": {"c": 1}}}, [move("/a", "/a/b/d")], 0, "own child"),
    Fails("of an element into itself", [[1]], [move("/0", "/0/0")], 0, "own child"),
    Fails("of the whole document", {"a": 1}, [move("", "/b")], 0, "own child"),
    Fails("with an escaped name", {"a/b": {}}, [move("/a~1b", "/a~1b/c")], 0, "own child"),
    # prototypes, which JavaScript peers refuse (reference-client 7.3)
    Fails("__proto__ as the target", {}, [add("/__proto__", 1)], 0, "prototype"),
    Fails("__proto__ on the way", {"__proto__": {}}, [add("/__proto__/a", 1)], 0, "prototype"),
    Fails("__proto__ as the source", {"__proto__": 1}, [copy_("/__proto__", "/a")], 0, "prototype"),
    Fails("constructor/prototype", {"constructor": {}}, [add("/constructor/prototype", 1)], 0, "prototype"),
    # malformed pointers (SNAP-7)
    Fails("no slash at the start", {"a": 1}, [remove("a")], 0, "slash"),
    Fails("a tilde at the end", {"a~": 1}, [remove("/a~")], 0, "tilde"),
    Fails("a tilde before another sign", {"a~2": 1}, [remove("/a~2")], 0, "tilde"),
    Fails("a 'from' without a slash", {"a": 1}, [move("a", "/b")], 0, "slash"),
    Fails("a fragment is not a pointer", {"a": 1}, [remove("#/a")], 0, "slash"),
    # malformed operations (SNAP-8); the decoder has refused these before, where they came over the wire
    Fails("no op", {}, [{"path": "/a", "value": 1}], 0, "'op' must be one of"),
    Fails("an unknown op", {}, [{"op": "merge", "path": "/a", "value": 1}], 0, "'merge'"),
    Fails("op in capitals", {}, [{"op": "ADD", "path": "/a", "value": 1}], 0, "'ADD'"),
    Fails("an op that is no string", {}, [{"op": ["add"], "path": "/a", "value": 1}], 0, "'op' must be one of"),
    Fails("no path", {}, [{"op": "add", "value": 1}], 0, "'path'"),
    Fails("a path that is null", {}, [{"op": "remove", "path": None}], 0, "'path' must be a string, not null"),
    Fails("a path that is a number", {}, [{"op": "remove", "path": 0}], 0, "'path' must be a string, not a number"),
    Fails("a path that is an array", {}, [{"op": "remove", "path": ["/", "a"]}], 0, "must be a string, not an array"),
    Fails("add without a value", {}, [{"op": "add", "path": "/a"}], 0, "'value'"),
    Fails("replace without a value", {"a": 1}, [{"op": "replace", "path": "/a"}], 0, "'value'"),
    Fails("replace of the root without a value", {"a": 1}, [{"op": "replace", "path": ""}], 0, "'value'"),
    Fails("test without a value, even where null is", {"a": None}, [{"op": "test", "path": "/a"}], 0, "'value'"),
    Fails("move without from", {"a": 1}, [{"op": "move", "path": "/a"}], 0, "'from'"),
    Fails("copy without from", {"a": 1}, [{"op": "copy", "path": "/b", "value": 1}], 0, "'from'"),
    Fails("a from that is no string", {"a": 1}, [{"op": "copy", "from": 1, "path": "/b"}], 0, "must be a string"),
    Fails("an operation that is a string", {}, ["remove"], 0, "an operation must be an object, not a string"),
    Fails("an operation that is null", {}, [None], 0, "an operation must be an object, not null"),
    Fails("an operation that is an array", {}, [["remove", "/a"]], 0, "an operation must be an object, not an array"),
    Fails("an operation in the place of the array", {"a": 1}, remove("/a"), None, "a patch must be an array"),
    Fails("a patch that is null", {}, None, None, "a patch must be an array of operations, not null"),
    Fails("a patch that is text", {}, "[]", None, "a patch must be an array of operations, not a string"),
    Fails("the operation at fault is named", {}, [add("/a", 1), add("/b", 2), remove("/c"), remove("/d")], 2, "'c'"),
]  # fmt: skip


@pytest.mark.parametrize("case", APPLIES, ids=[case.shows for case in APPLIES])
def test_a_patch_applies(case: Applies):
    document, patch = copy.deepcopy(case.document), copy.deepcopy(case.patch)
    result = apply_patch(document, patch)
    assert json_equal(result, case.result), result
    assert json_equal(document, case.document), "the old document changed"
    assert json_equal(patch, case.patch), "the patch changed"


@pytest.mark.parametrize("case", FAILS, ids=[case.shows for case in FAILS])
def test_a_patch_does_not_apply(case: Fails):
    document, patch = copy.deepcopy(case.document), copy.deepcopy(case.patch)
    with pytest.raises(PatchError) as caught:
        apply_patch(document, patch)
    assert case.says in caught.value.message
    assert caught.value.index == case.index
    if case.index is not None:
        operation = patch[case.index]
        assert caught.value.operation is operation
        path = operation.get("path") if isinstance(operation, dict) else None
        assert caught.value.path == (path if isinstance(path, str) else "")
    assert json_equal(document, case.document), "the old document changed"
    assert json_equal(patch, case.patch), "the patch changed"


def test_every_row_shows_something_else():
    shown = [case.shows for case in [*APPLIES, *FAILS]]
    assert len(set(shown)) == len(shown)


def test_a_patch_error_is_not_a_protocol_error_and_names_the_operation():
    with pytest.raises(AguilaError, match=r"^operation 1: there is no member 'b'$"):
        apply_patch({"a": 1}, [expect("/a", 1), remove("/b")])


def test_what_a_patch_does_not_touch_is_shared_with_the_old_document():
    document = {"touched": {"x": 1, "deep": {}}, "same": {"y": [1]}}
    result = apply_patch(document, [replace("/touched/x", 2)])
    assert result is not document
    assert result["touched"] is not document["touched"]
    assert result["same"] is document["same"]
    assert result["touched"]["deep"] is document["touched"]["deep"]


def test_replacing_a_member_keeps_the_order_of_members():
    assert list(apply_patch({"a": 1, "b": 2, "c": 3}, [replace("/b", 0), add("/a", 0)])) == ["a", "b", "c"]


def test_a_patch_of_tests_copies_nothing():
    document = {"a": [1]}
    assert apply_patch(document, [expect("/a/0", 1), expect("/a", [1])]) is document


def test_a_thousand_operations_copy_each_container_once(monkeypatch: pytest.MonkeyPatch):
    copied: list[Any] = []

    def copy(node: Any, owned: dict[int, Any]) -> Any:
        copied.append(node)
        return original(node, owned)

    original = apply._copy_container
    monkeypatch.setattr(apply, "_copy_container", copy)
    document = {"list": [{"n": i} for i in range(500)]}
    result = apply_patch(document, [replace(f"/list/{i}/n", -n) for n in range(2) for i in range(500)])
    assert result == {"list": [{"n": -1}] * 500}
    assert len(copied) == 502  # the root, the list and its elements
    assert copied[0] is document
    assert copied[1] is document["list"]


def test_a_failing_operation_names_itself_after_many_that_applied():
    document = {"list": []}
    with pytest.raises(PatchError) as caught:
        apply_patch(document, [*(add("/list/-", i) for i in range(500)), remove("/nothing")])
    assert caught.value.index == 500
    assert document == {"list": []}


def test_documents_deeper_than_the_stack_of_python():
    depth = 20_000
    document: Any = "bottom"
    for _ in range(depth):
        document = {"k": document}
    path = "/k" * depth
    changed = apply_patch(document, [expect(path, "bottom"), replace(path, "new"), expect(path, "new")])
    assert not json_equal(changed, document)
    assert json_equal(apply_patch(changed, [replace(path, "bottom")]), document)


def test_tuples_and_kinds_of_dict_count_as_json():
    class Members(dict[str, Any]):
        pass

    document = Members(point=(1, 2), inner=Members(a=True))
    result = apply_patch(document, [add("/point/-", 3), expect("/inner", {"a": True}), add("/inner/b", 1)])
    assert result == {"point": [1, 2, 3], "inner": {"a": True, "b": 1}}
    assert document == {"point": (1, 2), "inner": {"a": True}}
    with pytest.raises(PatchError):
        apply_patch(document, [expect("/inner", {"a": 1})])


def test_a_patch_may_be_a_tuple():
    assert apply_patch({}, (add("/a", 1),)) == {"a": 1}


def test_the_result_can_be_written_as_json():
    result = apply_patch({"a": [1]}, [add("/a/-", {"b": None}), copy_("/a", "/c")])
    assert json.loads(json.dumps(result)) == {"a": [1, {"b": None}], "c": [1, {"b": None}]}


@pytest.mark.parametrize(
    ("patch", "rule"),
    [
        ({}, "SNAP-8"),
        ([1], "SNAP-8"),
        ([{"op": "add", "path": "/a"}], "SNAP-8"),
        ([{"op": "add", "path": 1, "value": 1}], "SNAP-8"),
        ([{"op": "grow", "path": "/a"}], "SNAP-8"),
        ([remove("/a")], "SNAP-9"),
        ([expect("", 1)], "SNAP-9"),
    ],
)
def test_a_malformed_patch_is_told_from_one_that_does_not_apply(patch: Any, rule: str):
    with pytest.raises(PatchError) as caught:
        apply_patch({}, patch)
    assert caught.value.rule == rule


@pytest.mark.parametrize(
    "operation",
    [
        replace("/list/" + "9" * 5000, 1),
        replace("/list/" + "x" * 5000, 1),
        replace("/" + "x" * 5000, 1),
        replace("x" * 5000, 1),
        replace("/text/" + "x" * 5000, 1),
        replace("/__proto__/" + "x" * 5000, 1),
        move("/list/0" + "/x" * 5000, "/list/0" + "/x" * 5001),
        {"op": "x" * 5000, "path": ""},
    ],
)
def test_a_long_path_is_not_repeated_in_full(operation: Any):
    with pytest.raises(PatchError) as caught:
        apply_patch({"list": [1], "text": ""}, [operation])
    assert len(str(caught.value)) < 300
    assert caught.value.operation is operation
