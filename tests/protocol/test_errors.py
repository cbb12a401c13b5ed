"""Errors cross processes: an error of a worker has the same text and attributes in the parent."""

import copy
import inspect
import pickle

import pytest

import aguila.errors
from aguila.codec.protobuf import OversizedFrame
from aguila.errors import AguilaError, AuthFailed, DecodeError, HTTPRejected, MissingExtra, RunFailed, StreamTruncated
from aguila.protocol import RunErrorEvent, UserMessage
from aguila.stream import Reducer

CLASSES = [kind for kind in vars(aguila.errors).values() if isinstance(kind, type) and issubclass(kind, AguilaError)]
WAYS = [
    *(lambda error, protocol=protocol: pickle.loads(pickle.dumps(error, protocol)) for protocol in (2, 5)),
    copy.copy,
    copy.deepcopy,
]


def filled(kind):
    """Return an error of this kind with a value that is not the default for every argument."""
    values = {"error": ValueError("no token"), "index": 3, "status": 429, "retry_after": 1.5, "body": {"a": [1]}}
    values |= {"rounds": 10, "event": RunErrorEvent(message="m"), "operation": {"op": "add"}, "run": {"runId": "r"}}
    values |= {"was_sent": False, "is_lasting": True, "is_timeout": True}
    if kind.__init__ is Exception.__init__:
        return kind("the text")
    parameters = list(inspect.signature(kind).parameters.values())
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return kind("the text")
    given = {each.name: values.get(each.name, f"the {each.name}") for each in parameters}
    positional = [given.pop(each.name) for each in parameters if each.kind is each.POSITIONAL_OR_KEYWORD]
    return kind(*positional, **given)


@pytest.mark.parametrize("way", WAYS, ids=["pickle 2", "pickle 5", "copy", "deepcopy"])
@pytest.mark.parametrize("kind", [*CLASSES, OversizedFrame], ids=lambda kind: kind.__name__)
def test_an_error_comes_back_as_it_was(kind, way):
    error = filled(kind)
    error.add_note("and a note")
    back = way(error)
    assert type(back) is kind
    assert (str(back), repr(back), back.args) == (str(error), repr(error), error.args)
    assert vars(back) == vars(error)


def test_the_conversation_comes_along():
    for error in (RunFailed("m", code="c"), StreamTruncated("m"), DecodeError("m", rule="ENV-1", path="/a", index=1)):
        error.conversation = Reducer([UserMessage(id="u", content="x")], {"n": 1}).conversation
        assert error.conversation.usage == [], "also what was computed once"
        back = pickle.loads(pickle.dumps(error))
        assert back.conversation == error.conversation


def test_what_python_keeps_for_itself_comes_back_too():
    assert pickle.loads(pickle.dumps(MissingExtra("server", "uvicorn"))).msg == MissingExtra("server", "uvicorn").msg
    error = AuthFailed(ValueError("no token"))
    assert str(pickle.loads(pickle.dumps(error))) == "auth returned no credentials: ValueError: no token"
    assert pickle.loads(pickle.dumps(HTTPRejected(404, code="gone"))).status == 404


def test_errors_of_an_application_that_derives_from_ours_come_back():
    back = pickle.loads(pickle.dumps(Mine("x", 1)))
    assert (type(back), str(back), back.more) == (Mine, "x", 1)


class Mine(StreamTruncated):
    def __init__(self, message, more):
        super().__init__(message)
        self.more = more
