"""Use a front end as a user does: one function for each row of the table. A scenario fails by raising."""

from __future__ import annotations

import re
from collections.abc import Callable

from faults.cutting_proxy import CuttingProxy
from front_ends import FrontEnd
from playwright.sync_api import expect
from waiting import wait_until

from aguila.cli.demo import png

Scenario = Callable[[FrontEnd], None]
SCENARIOS: dict[str, Scenario] = {}
TEXT = "everybody who watches sees it grow."


def counted(last: int) -> str:
    """Return the beginning of the text of the demo's ``slow``."""
    return " ".join(map(str, range(1, last + 1)))


def scenario(name: str) -> Callable[[Scenario], Scenario]:
    def register(play: Scenario) -> Scenario:
        SCENARIOS[name] = play
        return play

    return register


@scenario("text")
def play_text(front: FrontEnd) -> None:
    front.send("text please")
    front.sees(TEXT)
    front.is_idle()
    front.send("text please")
    expect(front.messages().get_by_text(TEXT)).to_have_count(2)


@scenario("reasoning")
def play_reasoning(front: FrontEnd) -> None:
    front.send("reasoning please")
    front.sees("six sevens are forty-two")
    front.sees("42")


@scenario("backend tools, rendered")
def play_tools(front: FrontEnd) -> None:
    front.send("tools please")
    front.sees("It is 24 degrees in Lisbon and 11 in Oslo.")
    front.sees_weather("Lisbon", 24)
    front.sees_weather("Oslo", 11)


@scenario("front-end tool")
def play_front_end_tool(front: FrontEnd) -> None:
    front.send("frontend please")
    front.sees_background("rgb(230, 230, 250)")


@scenario("human in the loop")
def play_human_in_the_loop(front: FrontEnd) -> None:
    front.send("frontend please")
    front.confirm("Yes")
    front.sees("Your front end answered:")
    front.is_idle()


@scenario("shared state")
def play_state(front: FrontEnd) -> None:
    front.send("state please")
    front.sees("Now with thyme.")
    front.sees_ingredients("leek", "potato", "thyme")
    front.is_idle()
    front.rename_recipe("Stew")
    front.send("text please")
    front.sees(TEXT)
    wait_until(lambda: front.server.get(f"/threads/{front.thread_id}")["state"]["recipe"]["title"] == "Stew")


@scenario("interrupt, answered")
def play_interrupt(front: FrontEnd) -> None:
    front.send("interrupt please")
    expect(front.question()).to_have_count(1)
    front.answer(colour="green")
    front.sees("It will be green.")
    expect(front.question()).to_have_count(0)
    front.is_idle()
    front.send("text please")
    front.sees(TEXT)


@scenario("interrupt, cancelled")
def play_interrupt_cancelled(front: FrontEnd) -> None:
    front.send("interrupt please")
    front.cancel_question()
    front.sees("Then I choose for you: blue.")


@scenario("interrupt, after a reload")
def play_interrupt_reload(front: FrontEnd) -> None:
    front.send("interrupt please")
    expect(front.question()).to_be_visible()
    front.reload()
    expect(front.question()).to_have_count(1)
    front.answer(colour="red")
    front.sees("It will be red.")


@scenario("approval with edited arguments")
def play_approval(front: FrontEnd) -> None:
    front.send("approval please")
    front.approve({"to": "grace@example.com", "subject": "Owls"})
    front.sees("Sent to grace@example.com.")
    front.is_idle()
    front.send("text please")
    front.sees(TEXT)
    messages = front.server.get(f"/threads/{front.thread_id}")["messages"]
    results = [message["content"] for message in messages if message["role"] == "tool"]
    assert len(results) == 1, results
    assert "grace@example.com" in results[0], results


@scenario("image attachment")
def play_attachment(front: FrontEnd) -> None:
    front.attach("square.png", png(5, 7, (200, 0, 0)))
    front.send("image please")
    front.sees(re.compile("You sent a PNG image, 5 by 7, of [0-9]+ bytes"))


@scenario("image result")
def play_image_result(front: FrontEnd) -> None:
    front.send("image please")
    front.sees("I drew a blue square.")
    front.sees_drawing()


@scenario("activity")
def play_activity(front: FrontEnd) -> None:
    front.send("activity please")
    front.sees("The plan is done.")
    front.sees_done_plan(3)


@scenario("A2UI surface")
def play_a2ui(front: FrontEnd) -> None:
    front.send("generative please")
    front.sees("Three ways to say what to draw.")
    front.sees("Book the flight?")


@scenario("subagents")
def play_subagents(front: FrontEnd) -> None:
    front.send("subagents please")
    front.sees("I found two papers about eagles.")
    front.sees("One of them is about golf.")
    front.sees("My team has spoken.")


@scenario("run error")
def play_error(front: FrontEnd) -> None:
    front.send("error please")
    front.sees_error()
    front.is_idle()
    front.send("text please")
    front.sees(TEXT)


@scenario("stop cancels the run")
def play_stop(front: FrontEnd) -> None:
    front.send("slow please")
    front.sees("1 2 3")
    front.stop()
    wait_until(lambda: not front.server.is_running(front.thread_id))
    status = [run["status"] for run in front.server.get(f"/threads/{front.thread_id}")["runs"]]
    assert status == ["cancelled"], status
    front.is_idle()
    front.send("text please")
    front.sees(TEXT)


@scenario("reload while idle")
def play_reload(front: FrontEnd) -> None:
    front.send("tools please")
    front.sees("11 in Oslo.")
    front.is_idle()
    front.reload()
    front.sees("tools please")
    front.sees("It is 24 degrees in Lisbon and 11 in Oslo.")
    front.sees_weather("Oslo", 11)
    front.send("text please")
    front.sees(TEXT)


@scenario("reload while running")
def play_reload_running(front: FrontEnd) -> None:
    front.send("slow please")
    front.sees("1 2 3 4 5")
    front.reload()
    front.sees(counted(40))
    assert front.server.is_running(front.thread_id)
    front.stop()
    wait_until(lambda: not front.server.is_running(front.thread_id))


@scenario("two cuts without loss")
def play_cuts(front: FrontEnd) -> None:
    with CuttingProxy(front.server.url, lambda: None) as proxy:
        front.open(proxy.url)
        front.send("slow please")
        front.sees("1 2 3 4 5")
        proxy.cut_now()
        front.sees(counted(20))
        proxy.cut_now()
        front.sees(counted(60))
        assert proxy.cuts >= 2
        front.stop()
        wait_until(lambda: not front.server.is_running(front.thread_id))


@scenario("server restart")
def play_restart(front: FrontEnd) -> None:
    front.send("text please")
    front.sees(TEXT)
    front.is_idle()
    front.server.restart()
    front.send("tools please")
    front.sees("11 in Oslo.")
    front.is_idle()
    front.reload()
    front.sees(TEXT)
    front.sees("11 in Oslo.")


@scenario("thread list")
def play_thread_list(front: FrontEnd) -> None:
    front.send(f"text please {front.thread_name()}")
    front.sees(TEXT)
    expect(front.thread_row(front.thread_name())).to_be_visible()
    front.new_thread()
    expect(front.messages()).not_to_contain_text(TEXT)
    front.open_thread(front.thread_name())
    front.sees(TEXT)


@scenario("thread rename")
def play_rename(front: FrontEnd) -> None:
    front.send(f"text please {front.thread_name()}")
    front.sees(TEXT)
    title = f"Trip {front.thread_id[:6]}"
    front.rename_thread(front.thread_name(), title)
    expect(front.thread_row(title)).to_be_visible()
    front.reload()
    expect(front.thread_row(title)).to_be_visible()


@scenario("thread delete")
def play_delete(front: FrontEnd) -> None:
    front.send(f"text please {front.thread_name()}")
    front.sees(TEXT)
    name = front.thread_name()
    expect(front.thread_row(name)).to_be_visible()
    front.delete_thread(name)
    expect(front.thread_row(name)).to_have_count(0)
    wait_until(lambda: all(found["threadId"] != front.thread_id for found in front.server.get("/threads")["threads"]))
