"""Python functions as tools."""

from __future__ import annotations

import datetime
import enum
import functools
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, TypedDict

import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aguila.chat import function_schema, read_arguments
from aguila.chat.tools.docstrings import read_docstring
from aguila.errors import DecodeError

NOTHING = object()


class Unit(enum.Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Place:
    city: str
    country: str = "FR"


class Range(TypedDict):
    low: int
    high: int


def weather(
    place: Place,
    days: Annotated[int, msgspec.Meta(ge=1, le=7, description="1 to 7")] = 3,
    unit: Unit = Unit.CELSIUS,
    since: datetime.date | None = None,
    mode: Literal["short", "long"] = "short",
) -> str:
    """Forecast the weather.

    Uses a satellite.

    Args:
        place: Where. A city
            and its country.
        days (int): ignored, the type says it.
        unit: The unit: one of two.

    Returns:
        place: not a parameter.
    """
    return f"{place}{days}{unit}{since}{mode}"


def test_a_function_becomes_a_tool() -> None:
    tool = function_schema(weather)
    assert tool.name == "weather"
    assert tool.description == "Forecast the weather.\n\nUses a satellite."
    assert tool.parameters == {
        "type": "object",
        "properties": {
            "place": {"$ref": "#/$defs/Place", "description": "Where. A city and its country."},
            "days": {"type": "integer", "minimum": 1, "maximum": 7, "description": "1 to 7", "default": 3},
            "unit": {"$ref": "#/$defs/Unit", "description": "The unit: one of two.", "default": "c"},
            "since": {"anyOf": [{"type": "string", "format": "date"}, {"type": "null"}], "default": None},
            "mode": {"enum": ["long", "short"], "default": "short"},
        },
        "required": ["place"],
        "additionalProperties": False,
        "$defs": {
            "Place": {
                "title": "Place",
                "type": "object",
                "properties": {"city": {"type": "string"}, "country": {"type": "string", "default": "FR"}},
                "required": ["city"],
            },
            "Unit": {"title": "Unit", "enum": ["c", "f"]},
        },
    }


def test_arguments_come_back_as_the_types_of_the_function() -> None:
    read = read_arguments(weather, {"place": {"city": "Paris"}, "unit": "f", "since": "2026-01-02"})
    assert read == {"place": Place("Paris"), "unit": Unit.FAHRENHEIT, "since": datetime.date(2026, 1, 2)}


@pytest.mark.parametrize(
    ("arguments", "path"),
    [
        ({}, "/place"),
        ({"place": {"city": 3}}, "/place/city"),
        ({"place": {"city": "x"}, "days": 9}, "/days"),
        ({"place": {"city": "x"}, "colour": 1}, "/colour"),
    ],
)
def test_wrong_arguments_are_refused_with_a_pointer(arguments: dict[str, Any], path: str) -> None:
    with pytest.raises(DecodeError) as caught:
        read_arguments(weather, arguments)
    assert caught.value.path == path


def test_names_descriptions_and_exclusions_can_be_given() -> None:
    def look(run: object, where: Annotated[str, "a direction"], *, untyped=1) -> None:  # type: ignore[no-untyped-def]
        """Look."""

    tool = function_schema(look, name="peek", description="Peek.", exclude=["run"])
    assert (tool.name, tool.description) == ("peek", "Peek.")
    assert tool.parameters == {
        "type": "object",
        "properties": {"where": {"type": "string", "description": "a direction"}, "untyped": {"default": 1}},
        "required": ["where"],
        "additionalProperties": False,
    }
    assert read_arguments(look, {"where": "up", "untyped": [None]}, exclude=["run"]) == {
        "where": "up",
        "untyped": [None],
    }


def test_methods_partials_and_callable_objects_are_functions() -> None:
    class Tools:
        def add(self, a: int, b: int) -> int:
            """Add."""
            return a + b

        def __call__(self, text: str) -> str:
            """Echo."""
            return text

    tools = Tools()
    assert function_schema(tools.add).parameters["required"] == ["a", "b"]  # type: ignore[index]
    assert function_schema(functools.partial(tools.add, b=1), exclude=["b"]).name == "add"
    assert function_schema(tools).name == "Tools"
    assert function_schema(tools).parameters["properties"] == {"text": {"type": "string"}}  # type: ignore[index]


def test_keyword_arguments_leave_the_schema_open() -> None:
    def log(level: str, **fields: Any) -> None:
        """Log."""

    assert "additionalProperties" not in function_schema(log).parameters  # type: ignore[operator]
    assert read_arguments(log, {"level": "info", "x": 1}) == {"level": "info", "x": 1}


def test_what_cannot_be_called_by_name_or_described_is_refused() -> None:
    def positional(a: int, /) -> None: ...
    def variable(*a: int) -> None: ...
    def complicated(a: complex) -> None: ...

    for function in (positional, variable, complicated):
        with pytest.raises(TypeError, match=function.__name__):
            function_schema(function)


def test_a_default_that_is_no_json_is_not_mentioned() -> None:
    def f(a: Any = NOTHING) -> None: ...

    assert function_schema(f).parameters["properties"] == {"a": {}}  # type: ignore[index]


def test_a_typed_dict_is_described_in_full() -> None:
    def f(span: Range) -> None: ...

    assert function_schema(f).parameters["$defs"]["Range"]["required"] == ["high", "low"]  # type: ignore[index]


def test_a_class_that_describes_itself_is_asked() -> None:
    class Model:
        def __init__(self, value: Any) -> None:
            self.value = value

        @staticmethod
        def model_json_schema(*, ref_template: str) -> dict[str, Any]:
            return {"type": "object", "$defs": {"Inner": {"type": "string"}}, "x": ref_template.format(model="Inner")}

        @classmethod
        def model_validate(cls, value: Any) -> Model:
            if value is None:
                raise ValueError("no value")
            return cls(value)

    def f(model: Any) -> None: ...

    f.__annotations__["model"] = Model
    parameters: Any = function_schema(f).parameters
    assert parameters["properties"]["model"] == {"type": "object", "x": "#/$defs/Inner"}
    assert parameters["$defs"] == {"Inner": {"type": "string"}}
    assert read_arguments(f, {"model": 3})["model"].value == 3
    with pytest.raises(DecodeError, match="no value"):
        read_arguments(f, {"model": None})


class City(pydantic.BaseModel):
    """A city."""

    name: str = pydantic.Field(min_length=1)
    when: datetime.date | None = None


@dataclass
class Trip:
    stops: list[City]


def travel(
    cities: list[City],
    trip: Trip,
    home: City | None = None,
    days: Annotated[int, pydantic.Field(description="how long", ge=1)] = 3,
    seats: int = pydantic.Field(2, description="how many"),
    *,
    label: str = pydantic.Field(),
    where: Annotated[City | None, "by the way"] = None,
) -> None:
    """Travel."""


def test_models_of_pydantic_stand_anywhere_in_a_signature() -> None:
    parameters: Any = function_schema(travel).parameters
    properties = parameters["properties"]
    assert properties["cities"] == {"type": "array", "items": {"$ref": "#/$defs/City"}}
    assert properties["days"] == {"type": "integer", "minimum": 1, "description": "how long", "default": 3}
    assert properties["seats"] == {"type": "integer", "description": "how many", "default": 2}
    assert properties["where"]["description"] == "by the way"
    assert set(parameters["$defs"]) == {"City", "Trip"}
    assert parameters["required"] == ["cities", "trip", "label"]
    given = {"cities": [{"name": "Oslo", "when": "2026-01-02"}], "trip": {"stops": [{"name": "Rome"}]}, "label": "x"}
    read = read_arguments(travel, given)
    assert read["cities"] == [City(name="Oslo", when=datetime.date(2026, 1, 2))]
    assert read["trip"] == Trip([City(name="Rome")])
    assert read["seats"] == 2
    assert "days" not in read


@pytest.mark.parametrize(
    ("wrong", "path"),
    [({"days": 0}, "/days"), ({"cities": [{"name": ""}]}, "/cities/0/name"), ({"trip": {}}, "/trip/stops")],
)
def test_wrong_arguments_of_models_are_refused_with_a_pointer(wrong: dict[str, Any], path: str) -> None:
    fitting = {"cities": [], "trip": {"stops": []}, "label": "x"}
    assert read_arguments(travel, fitting)["cities"] == []
    with pytest.raises(DecodeError) as refused:
        read_arguments(travel, {**fitting, **wrong})
    assert refused.value.path == path
    with pytest.raises(DecodeError, match="missing"):
        read_arguments(travel, {"cities": [], "trip": {"stops": []}})


def test_paths_and_iterables_are_strings_and_lists() -> None:
    def f(
        path: Path, names: Iterable[str] = (), more: Iterable[int] | None = None, all: list[Path] | None = None
    ) -> None: ...

    f.__annotations__ = {
        "path": Path,
        "names": Iterable[str],
        "more": Iterable[int] | None,
        "all": list[Path] | None,
    }
    properties: Any = function_schema(f).parameters["properties"]  # type: ignore[index]
    assert properties["path"] == {"type": "string", "format": "path"}
    assert properties["names"]["items"] == {"type": "string"}
    read = read_arguments(f, {"path": "a/b", "names": ["x"], "more": [1], "all": ["c"]})
    assert read == {"path": Path("a/b"), "names": ["x"], "more": [1], "all": [Path("c")]}
    with pytest.raises(DecodeError):
        read_arguments(f, {"path": 3})


def test_a_type_without_a_schema_is_refused_with_what_there_is_instead() -> None:
    def f(x: Place | Range) -> None: ...

    with pytest.raises(TypeError, match="unions in which at most one type is an object"):
        function_schema(f)

    def g(x: complex) -> None: ...

    with pytest.raises(TypeError, match="complex'> is not a JSON type"):
        function_schema(g)


def test_a_partial_is_described_by_its_function() -> None:
    tool = function_schema(functools.partial(weather, unit=Unit.CELSIUS))
    assert tool.name == "weather"
    assert tool.description == function_schema(weather).description


@pytest.mark.parametrize(
    "text",
    [
        "Do it.\n\nArgs:\n    a: the first\n        one\n    b (int, optional): second: this\n",
        "Do it.\n\n:param int a: the first\n    one\n:param b: second: this\n:returns: a thing\n",
        "Do it.\n\nParameters\n----------\na : int\n    the first\n    one\nb\n    second: this\n\nRaises\n------\n",
    ],
)
def test_docstrings_of_three_styles_say_the_same(text: str) -> None:
    assert read_docstring(text) == ("Do it.", {"a": "the first one", "b": "second: this"})


@settings(max_examples=100, deadline=None)
@given(st.text(st.sampled_from("a:() \n-Args,*"), max_size=60))
def test_any_docstring_is_read(text: str) -> None:
    summary, parameters = read_docstring(text)
    assert isinstance(summary, str)
    assert all(isinstance(value, str) for value in parameters.values())
