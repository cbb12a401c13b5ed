"""The options of an App that front ends need."""

from __future__ import annotations

from typing import Any, cast, get_args

import pytest

from aguila import App
from aguila.server import front_end_options
from aguila.server.front_ends import FrontEnd


async def agent(run: Any) -> Any:
    yield "Hello"


@pytest.mark.parametrize("name", get_args(FrontEnd))
def test_the_options_of_every_front_end_make_an_app(name: FrontEnd) -> None:
    App(agent, **front_end_options(name))


def test_an_option_can_be_replaced_in_the_dict() -> None:
    options = front_end_options("copilotkit") | {"copilotkit": "/kit"}
    app = App(agent, **options)
    assert app.copilotkit is not None
    assert app.copilotkit.path == "/kit"


def test_a_change_of_the_dict_does_not_reach_the_next_app() -> None:
    front_end_options("copilotkit")["capabilities"]["custom"]["a2ui"] = False
    assert front_end_options("copilotkit")["capabilities"] == {"custom": {"a2ui": True}}


def test_an_unknown_front_end_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=r"'gradio'.* copilotkit, assistant-ui, tanstack, tdesign"):
        front_end_options(cast(Any, "gradio"))
