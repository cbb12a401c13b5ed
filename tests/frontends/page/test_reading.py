"""What makes a conversation easy to read and to find: code, task lists, thumbnails, durations, the list of threads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from typing import Any

import httpx2
from accessibility import axe_findings
from chat_page import ChatPage
from playwright.sync_api import expect

from aguila.agent import Run
from aguila.cli.demo import png
from aguila.server import App

ANSWER = """Here is the plan:

- [x] read the **file**
- [ ] write it

```python
# Count the lines
def count(path: str) -> int:
    return len(open("a # b").read().splitlines()) + 10
```

```nonsense
def
```
"""


async def answers_with_code(run: Run) -> None:
    await run.say(ANSWER)


def test_an_answer_highlights_code_and_draws_task_lists(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(answers_with_code, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.is_idle()
    code = chat.page.get_by_label("Code, python")
    expect(code).to_have_text(re.compile(r"# Count the lines\ndef count\(path: str\) -> int:\n    return len"))
    expect(code.locator(".code-comment")).to_have_text(["# Count the lines"])
    expect(code.locator(".code-keyword")).to_have_text(["def", "return"])
    expect(code.locator(".code-string")).to_have_text(['"a # b"'])
    expect(code.locator(".code-name")).to_have_text(["count", "len", "open", "read", "splitlines"])
    expect(code.locator(".code-number")).to_have_text(["10"])
    expect(chat.page.get_by_label("Code, nonsense").locator("span")).to_have_count(0)
    tasks = chat.messages().get_by_role("listitem")
    expect(tasks).to_have_text(["read the file", "write it"])
    expect(tasks.nth(0).get_by_role("checkbox", name="done")).to_be_checked()
    expect(tasks.nth(1).get_by_role("checkbox", name="open")).to_be_disabled()
    for scheme in ("light", "dark"):
        chat.page.emulate_media(color_scheme=scheme)  # type: ignore[arg-type]
        assert axe_findings(chat.page) == [], scheme


def test_an_attached_image_is_shown_before_it_is_sent(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(answers_with_code, allow_anonymous=True, page=True)))
    chat.attach("square.png", "image/png", png(5, 7, (200, 0, 0)))
    attachments = chat.page.get_by_label("Attachments")
    expect(attachments.locator("img")).to_have_js_property("naturalWidth", 5)
    attachments.get_by_role("button", name="Remove square.png").click()
    chat.attach("notes.txt", "text/plain", b"eagles")
    expect(attachments.locator("img")).to_have_count(0)


async def takes_its_time(run: Run) -> None:
    async with run.reasoning() as thought:
        await thought.write("Hm.")
        await asyncio.sleep(0.03)
    async with run.step("search"):
        call = await run.tool_call("get_weather", {"city": "Oslo"})
        await asyncio.sleep(0.02)
        await call.result("rain")
    await run.say("It rains.")


def test_durations_are_the_same_after_a_reload(serve: Callable[[Any], str], open_page: Callable[..., ChatPage]) -> None:
    chat = open_page(serve(App(takes_its_time, allow_anonymous=True, page=True)))

    def durations() -> list[str]:
        expect(chat.page.locator(".run-details")).to_have_text(re.compile(r"\d+ m?s"))
        return re.findall(r"\d[\d.]* m?s\b", chat.messages().inner_text())

    for _ in range(3):
        chat.ask("How is the weather?")
        chat.sees("It rains.")
        before = durations()
        assert len(before) == 4  # the thought, the step, the call and the run
        chat.page.reload()
        chat.sees("It rains.")
        assert durations() == before


async def talks(run: Run) -> None:
    run.state["items"] = list(range(200))
    for number in range(40):
        await run.say(f"Line {number}.")


def test_the_state_leaves_the_end_of_the_chat_in_view(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(talks, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.is_idle()
    last = chat.messages().get_by_text("Line 39.")
    expect(last).to_be_in_viewport()
    chat.page.get_by_role("button", name="State").click()
    expect(chat.page.get_by_role("region", name="State")).to_be_visible()
    rest = "document.querySelector('.scroll').scrollHeight - document.querySelector('.scroll').clientHeight"
    frames = "new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))"
    above: float = chat.page.evaluate(f"{frames}.then(() => {rest} - document.querySelector('.scroll').scrollTop)")
    assert above < 2
    expect(chat.page.get_by_role("button", name="Latest messages")).to_have_count(0)
    expect(last).to_be_in_viewport()


def test_a_thread_of_another_client_is_listed_by_its_first_message(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    url = serve(App(answers_with_code, allow_anonymous=True, page=True))
    message = {"id": "m", "role": "user", "content": "How do eagles sleep?"}
    httpx2.post(url, json={"threadId": "t", "runId": "r", "messages": [message], "tools": [], "context": []})
    page = open_page(url).page
    page.get_by_role("link", name="How do eagles sleep?").click()
    expect(page.get_by_role("heading", name="How do eagles sleep?")).to_be_visible()


def test_threads_are_found_by_words_of_their_titles(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    url = serve(App(answers_with_code, allow_anonymous=True, page=True))
    with httpx2.Client(base_url=url, timeout=60, trust_env=False) as client:
        for number in range(60):
            thread = f"t{number}"
            client.post("/", json={"threadId": thread, "runId": "r", "messages": [], "tools": [], "context": []})
            client.patch(f"/threads/{thread}", json={"title": f"Letter {number} to Ada" if number else "Oldest of ALL"})
    page = open_page(url).page
    threads = page.get_by_label("Threads", exact=True).get_by_role("listitem")
    expect(threads).to_have_count(50)
    search = page.get_by_role("searchbox", name="Search threads")
    search.fill("oldest all")  # it is not among the first 50
    expect(threads).to_have_count(1)
    expect(threads).to_contain_text("Oldest of ALL")
    search.fill("letter 1")
    expect(threads).to_have_count(15)  # 1, 10 to 19, 21, 31, 41, 51
    search.fill("nothing")
    expect(threads).to_have_count(0)
    expect(page.get_by_text("No title has these words.")).to_be_visible()


async def answers_with_deep_quotes(run: Run) -> None:
    await run.say("before **deep** text")
    await run.say("> " * 3_000 + "the bottom")
    await run.say("after **deep** text")


def test_markdown_that_nests_too_deep_is_shown_as_plain_text(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(answers_with_deep_quotes, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.is_idle()
    expect(chat.page.get_by_text("the bottom")).to_have_text(re.compile(r"^(> ){3000}the bottom$"))
    expect(chat.page.locator(".markdown strong")).to_have_text(["deep", "deep"])


LONG_LINK = "https://files.example/report?signature=" + "a1_b2__" * 150 + "end"

LONG_WORDS = f"""plain x{"*b*" * 300} end

{"_a__b" * 13_000}

[the report]({LONG_LINK}) and {LONG_LINK}

A *short* word, https://short.example and {"漢字" * 400}**強**{"漢字" * 400}.

`{"inline" * 100}`

```text
{"*data*" * 500}
```
"""


async def answers_with_long_words(run: Run) -> None:
    await run.say(LONG_WORDS)


def test_a_word_of_500_characters_is_drawn_as_plain_text_unless_it_is_a_link_or_code(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(answers_with_long_words, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.is_idle()
    markdown = chat.page.locator(".markdown").last
    expect(markdown.get_by_text("plain x")).to_have_text(re.compile(r"^plain x(\*b\*){300} end$"))
    expect(markdown.locator("em")).to_have_text(["short"])
    expect(markdown.locator("strong")).to_have_text(["強"])
    links = markdown.locator("a")
    expect(links).to_have_text(["the report", LONG_LINK, "https://short.example"])
    assert [link.get_attribute("href") for link in links.all()] == [LONG_LINK, LONG_LINK, "https://short.example"]
    expect(markdown.locator(":not(pre) > code")).to_have_text(["inline" * 100])
    expect(markdown.locator("pre code")).to_have_text("*data*" * 500)


async def answers_with_unclosed_emphasis(run: Run) -> None:
    await run.say("before *this* " + "_a__b\n" * 5_000 + "after *that*")


def test_emphasis_that_is_begun_thousands_of_times_and_never_ends_is_plain_text(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    chat = open_page(serve(App(answers_with_unclosed_emphasis, allow_anonymous=True, page=True)))
    chat.write("go")
    chat.is_idle()
    paragraph = chat.page.locator(".markdown p").last
    expect(paragraph).to_contain_text("after *that*")  # the search for the ends of emphasis is bounded
    expect(paragraph.locator("em")).to_have_text(["this"])
