"""Hostile content in everything that an agent, a user or a file name can bring to the page; and who may see it."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from chat_page import ChatPage
from inspector_page import InspectorPage
from playwright.sync_api import expect

from aguila.agent import Run
from aguila.cli.demo import A2UI_CATALOG
from aguila.protocol import TextPart
from aguila.server import App, Rejected, Request

EVIL = "window.pwned=1"
PAYLOADS = [
    f"<script>{EVIL}</script>",
    f"<ScRiPt src=data:text/javascript,{EVIL}></ScRiPt>",
    f'<img src=x onerror="{EVIL}">',
    f"<img src=x onerror={EVIL}//",
    f'<svg onload="{EVIL}"><circle/></svg>',
    f"<svg><script>{EVIL}</script></svg>",
    f'<svg><a xlink:href="javascript:{EVIL}"><text>x</text></a></svg>',
    f'<math><mi xlink:href="javascript:{EVIL}">x</mi></math>',
    f'<iframe src="javascript:{EVIL}"></iframe>',
    f"<iframe srcdoc='<script>parent.{EVIL}</script>'></iframe>",
    f'<object data="javascript:{EVIL}"></object>',
    f'<embed src="javascript:{EVIL}">',
    f'<a href="javascript:{EVIL}">x</a>',
    f'<a href=" java\tscript:{EVIL}">x</a>',
    f'<form action="javascript:{EVIL}"><button>x</button></form>',
    f'<button formaction="javascript:{EVIL}" form=x>x</button>',
    f'<input autofocus onfocus="{EVIL}">',
    f'<details open ontoggle="{EVIL}"><summary>x</summary></details>',
    f'<video><source onerror="{EVIL}"></video>',
    f'<body onload="{EVIL}">',
    f'<style>@import "https://evil.example/{EVIL}";</style>',
    "<link rel=stylesheet href=https://evil.example/x.css>",
    "<meta http-equiv=refresh content='0;url=https://evil.example/'>",
    "<base href=https://evil.example/>",
    '<div style="background:url(https://evil.example/x.png)">x</div>',
    f"[link](javascript:{EVIL})",
    f"[link](JaVaScRiPt:{EVIL})",
    f"[link](&#106;avascript:{EVIL})",
    f"[link](java&#10;script:{EVIL})",
    f"[link](data:text/html,<script>{EVIL}</script>)",
    f"[link](vbscript:{EVIL})",
    f"<javascript:{EVIL}>",
    "![image](https://evil.example/x.png)",
    f"![image](javascript:{EVIL})",
    f'![x" onerror="{EVIL}](x)',
    f'[x](https://example.com "title\\" onmouseover=\\"{EVIL}")',
    f"[ref]\n\n[ref]: javascript:{EVIL}",
    f"```html\n<script>{EVIL}</script>\n```",
    f"`<img src=x onerror={EVIL}>`",
    f"| a |\n|---|\n| <img src=x onerror={EVIL}> |",
    f"- <script>{EVIL}</script>\n- [x](javascript:{EVIL})",
    f"> <iframe src='javascript:{EVIL}'>",
    f"# <svg/onload={EVIL}>",
    f"<!--><script>{EVIL}</script>-->",
    f"<noscript><p title=\"</noscript><img src=x onerror={EVIL}>\">",
    f"<template><script>{EVIL}</script></template>",
    f"<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src=x onerror={EVIL}&gt;\">",
    f"<form><math><mtext></form><form><mglyph><svg><mtext><style><path id=\"</style><img onerror={EVIL} src>\">",
    f"\"><script>{EVIL}</script>",
    f"';{EVIL};//",
    f"${{{EVIL}}}",
    f"{{{{constructor.constructor('{EVIL}')()}}}}",
    f"</textarea><script>{EVIL}</script>",
    f"</pre><img src=x onerror={EVIL}>",
    "\u202e<script>1</script>",
    "javascript:" + EVIL,
    "data:text/html;base64,PHNjcmlwdD5wYXJlbnQucHduZWQ9MTwvc2NyaXB0Pg==",
    "//evil.example/x.js",
    "https://evil.example/<script>",
    "__proto__",
    '{"__proto__": {"pwned": 1}}',
    "constructor",
]  # fmt: skip


WATCH_POLICY = """
window.violations = [];
document.addEventListener("securitypolicyviolation", (event) => window.violations.push(event.violatedDirective));
"""


async def hostile(run: Run) -> None:
    """Send every payload in every place that an agent controls."""
    run.state = {payload: payload for payload in PAYLOADS}
    for number, payload in enumerate(PAYLOADS):
        await run.say(payload)
        async with run.reasoning() as thought:
            await thought.write(payload)
        call = await run.tool_call(f"tool {payload}", {payload: payload})
        await call.result([TextPart(text=payload)])
        async with run.step(f"{number} {payload}") as step:
            step.result = payload
        async with run.subagent(payload, payload) as subagent:
            await subagent.say(payload)
        await run.custom(payload, payload)
        await run.activity(f"PLAN {number}", {"steps": [{"title": payload}]})
        await run.activity("a2ui-surface", {"a2ui_operations": surface(f"s{number}", payload)})
    await run.ask(
        PAYLOADS[0], schema={"type": "object", "properties": {p: {"title": p, "enum": [p]} for p in PAYLOADS}}
    )


def surface(surface_id: str, payload: str) -> list[dict[str, Any]]:
    components = [
        {"id": "root", "component": "Column", "children": ["text", "image", "button"]},
        {"id": "text", "component": "Text", "text": payload},
        {"id": "image", "component": "Image", "url": payload},
        {
            "id": "button",
            "component": "Button",
            "child": "text",
            "action": {"functionCall": {"call": "openUrl", "args": {"url": payload}}},
        },
    ]
    create = {"version": "v0.9", "createSurface": {"surfaceId": surface_id, "catalogId": A2UI_CATALOG}}
    fill = {"version": "v0.9", "updateComponents": {"surfaceId": surface_id, "components": components}}
    return [create, fill]


def test_hostile_content_executes_and_loads_nothing(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    assert len(PAYLOADS) >= 60
    url = serve(App(hostile, allow_anonymous=True, page=True))
    chat = open_page(url)
    page = chat.page
    page.add_init_script(WATCH_POLICY)
    page.reload()
    page.on("dialog", lambda dialog: chat.console.append(f"dialog: {dialog.message}"))
    chat.attach(f"<img src=x onerror={EVIL}>.png", "image/png", b"no image")
    chat.write(PAYLOADS[0])
    expect(chat.question()).to_be_visible()
    page.get_by_role("button", name="State").click()
    page.evaluate("document.querySelectorAll('details').forEach((each) => (each.open = true))")
    assert page.evaluate("window.pwned") is None
    links = page.evaluate("[...document.querySelectorAll('a[href]')].map((link) => link.protocol)")
    assert set(links) <= {"http:", "https:", "mailto:", "blob:"}
    assert page.evaluate("document.querySelectorAll('.messages script, .messages iframe, .messages style').length") == 0
    for button in page.get_by_label("Surface").get_by_role("button", name=f"javascript:{EVIL}", exact=True).all():
        button.click()
    assert page.evaluate("[window.pwned, window.violations]") == [None, []]
    chat.page.reload()
    expect(chat.question()).to_be_visible()
    assert page.evaluate("[window.pwned, window.violations]") == [None, []]
    page.get_by_role("link", name="Inspect", exact=True).last.click()
    inspector = InspectorPage(page, page.url)
    expect(inspector.bar()).to_contain_text("interrupt")
    inspector.rows().nth(3).click()
    for tab in ("Event", "State", "Messages", "Violations", "Cost", "Input"):
        inspector.tab(tab)
        expect(page.get_by_role("tabpanel")).not_to_contain_text("Loading")
        assert page.evaluate("[window.pwned, window.violations]") == [None, []], tab
    # a part whose bytes are no image
    chat.console[:] = [line for line in chat.console if "blob:" not in line]


def test_what_a_token_may_not_do_is_shown_as_403(
    serve: Callable[[Any], str], open_page: Callable[..., ChatPage]
) -> None:
    def authenticate(request: Request) -> str:
        if request.headers.get("authorization") == "Bearer blocked":
            raise Rejected(403, "forbidden", "This account is blocked.")
        if request.method == "DELETE":
            raise Rejected(403, "forbidden", "Only administrators delete threads.")
        return "ada"

    async def agent(run: Run) -> None:
        await run.say("Hello.")

    chat = open_page(serve(App(agent, page=True, authenticate=authenticate)))
    page = chat.page
    token = page.get_by_role("dialog").get_by_label("Bearer token")
    page.get_by_role("button", name="Token").click()
    token.fill("ada-secret")
    page.keyboard.press("Enter")
    chat.ask("A message")
    page.get_by_role("button", name="Delete", exact=True).click()
    page.get_by_role("button", name="Delete thread").click()
    expect(page.get_by_role("alert")).to_contain_text("The thread was not deleted. Only administrators delete threads.")
    expect(page.locator("header.bar")).to_contain_text("403: this token may not do that")
    chat.sees("Hello.")
    chat.write("Another message")  # the token may do this, so the notice disappears
    expect(chat.user_message("Another message")).to_be_visible()
    expect(page.locator("header.bar")).not_to_contain_text("403")
    page.get_by_role("button", name="Change token").click()
    token.fill("blocked")
    page.keyboard.press("Enter")
    expect(page.get_by_label("Threads", exact=True)).to_contain_text("This account is blocked.")
    expect(page.locator("header.bar")).to_contain_text("403: this token may not do that")
    expect(chat.messages()).not_to_contain_text("Hello.")
    page.get_by_role("link", name="Inspector").click()
    expect(page.get_by_role("alert")).to_contain_text("This account is blocked.")
    chat.console[:] = [line for line in chat.console if " 403 " not in line]


def test_two_tokens_see_only_their_own_threads(
    serve: Callable[[Any], str],
    open_page: Callable[..., ChatPage],
) -> None:
    def authenticate(request: Request) -> str | None:
        return {"Bearer ada-secret": "ada", "Bearer bob-secret": "bob"}.get(request.headers.get("authorization", ""))

    async def agent(run: Run) -> None:
        await run.say(f"Hello, {run.principal}.")

    url = serve(App(agent, page=True, authenticate=authenticate))
    chat = open_page(url)
    dialog = chat.page.get_by_role("dialog")
    expect(dialog).to_contain_text("401: this server requires a bearer token.")
    dialog.get_by_label("Bearer token").fill("wrong")
    dialog.get_by_role("button", name="Use token").click()
    expect(dialog).to_contain_text("401: the server does not accept this token.")
    dialog.get_by_label("Bearer token").fill("ada-secret")
    dialog.get_by_role("button", name="Use token").click()
    expect(dialog).to_be_hidden()
    chat.attach("note.txt", "text/plain", b"of Ada")
    chat.write("A secret of Ada")
    chat.sees("Hello, ada.")
    chat.is_idle()
    expect(chat.page.get_by_role("link", name="A secret of Ada")).to_be_visible()
    chat.page.get_by_role("button", name="Change token").click()
    dialog.get_by_label("Bearer token").fill("bob-secret")
    dialog.get_by_role("button", name="Use token").click()
    expect(chat.page.get_by_role("link", name="A secret of Ada")).to_have_count(0)
    expect(chat.messages()).not_to_contain_text("Ada")
    chat.console[:] = [line for line in chat.console if " 401 " not in line and " 404 " not in line]
    assert json.dumps(chat.console).count("secret") == 0
