"""Navigation as a matrix: from each place to each place by click and by URL, then back, forward and reload."""

from __future__ import annotations

import pytest
from navigation import NAMES, Places


@pytest.mark.parametrize("means", ["click", "url"])
@pytest.mark.parametrize("origin", NAMES)
def test_the_page_shows_where_a_step_leads(places: Places, origin: str, means: str) -> None:
    for target in NAMES:
        places.go(origin, "url")
        before = places.hash()
        places.go(target, means)
        if places.hash() != before:  # otherwise the step has made no history entry
            places.page.go_back()
            places.check(origin)
            places.page.go_forward()
            places.check(target)
        places.reload(target)
    places.forget_missing()
