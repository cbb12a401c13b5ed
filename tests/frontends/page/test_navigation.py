"""Navigation: what is shown follows from the address, whatever led to it. These steps cover the matrix."""

from __future__ import annotations

from navigation import NAMES, Places, round_trip


def test_a_click_on_a_thread_of_the_list_opens_it_from_the_start_page(places: Places) -> None:
    places.check("start page")
    places.go("thread", "click")


def test_from_each_place_to_each_other_by_click_or_by_url(places: Places) -> None:
    for number, place in enumerate(round_trip(NAMES)):
        places.go(place, "click" if number % 2 else "url")
    places.forget_missing()


def test_each_place_is_shown_again_by_back_forward_and_reload(places: Places) -> None:
    for place in NAMES:
        places.go(place, "click")
        places.reload(place)
    for place in reversed(NAMES[:-1]):
        places.page.go_back()
        places.check(place)
    for place in NAMES[1:]:
        places.page.go_forward()
        places.check(place)
    places.forget_missing()
