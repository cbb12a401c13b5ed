"""The pages as their users see them: what to click and where to look, one class for each front end.

Every wait is for a condition of the page, with one deadline for all of them: the machine may be busy.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar
from urllib.parse import urlencode

from aguila_process import AguilaProcess
from playwright.sync_api import Locator, Page, expect
from ports import free_port
from recipes import RECIPES, install

DEADLINE = float(os.environ.get("AGUILA_FRONTENDS_DEADLINE", "60")) * 1000
"""Milliseconds that a page gets to show something."""

expect.set_options(timeout=DEADLINE)


NO_RECONNECT = "the client does not reconnect; a reload shows the whole run"
IMAGE_AS_TEXT = "the image of a tool result arrives as text; the client accepts nothing else there"


class FrontEnd:
    """A page on one thread. The defaults fit the pages that examples/frontends draws itself."""

    title = ""
    recipe = ""
    packages: tuple[str, ...] = ()
    query: ClassVar[dict[str, str]] = {}
    serve_options: tuple[str, ...] = ()
    served_app: str | None = None
    """The App that is served instead of the demo, which takes no options."""
    unsupported: ClassVar[dict[str, str]] = {}
    """Scenarios that this front end cannot show, with the reason."""
    partly: ClassVar[dict[str, str]] = {}
    """Scenarios that work with a loss, and what is lost."""
    notes: ClassVar[dict[str, str]] = {}
    """Remarks about scenarios that work."""

    def __init__(self, page: Page, origin: str, server: AguilaProcess) -> None:
        self.page = page
        self.origin = origin
        self.server = server
        self.thread_id = str(uuid.uuid4())
        page.set_default_timeout(DEADLINE)

    # Where the page is

    @classmethod
    @contextmanager
    def running(cls, server: AguilaProcess, origin: str) -> Iterator[None]:
        """Run the server between the page and Aguila, if the front end needs one."""
        yield

    def server_address(self, aguila: str) -> str:
        """Return the address that the page talks to, given Aguila's."""
        return aguila

    def open(self, aguila: str | None = None) -> None:
        """Open the page on its thread and wait until it is ready for a message."""
        address = self.server_address(aguila or self.server.url)
        parameters = {"server": address, "thread": self.thread_id, **self.query}
        self.page.goto(f"{self.origin}/index.html?{urlencode(parameters)}")
        self.is_idle()

    def reload(self) -> None:
        """Load the page again. A run may be in progress, so wait only until the page is drawn."""
        self.page.reload()
        expect(self.composer()).to_be_visible()

    # Messages

    def messages(self) -> Locator:
        return self.page.get_by_role("log", name="Messages")

    def composer(self) -> Locator:
        return self.page.get_by_role("textbox", name="Message")

    def send(self, text: str) -> None:
        self.composer().fill(text)
        self.page.get_by_role("button", name="Send").click()

    def attach(self, name: str, data: bytes) -> None:
        files: Any = [{"name": name, "mimeType": "image/png", "buffer": data}]
        self.page.locator("input[type=file]").set_input_files(files)

    def sees(self, text: str | re.Pattern[str]) -> None:
        """Wait until a text is among the messages."""
        expect(self.messages()).to_contain_text(text)

    def is_idle(self) -> None:
        """Wait until the page offers to send again."""
        expect(self.page.get_by_role("button", name="Send")).to_be_visible()

    def stop(self) -> None:
        self.page.get_by_role("button", name="Stop").click()

    def sees_error(self) -> None:
        expect(self.page.get_by_role("alert")).to_be_visible()

    # Tools, questions, state

    def sees_weather(self, city: str, degrees: int) -> None:
        expect(self.page.locator(".weather", has_text=city)).to_contain_text(f"{degrees} °C")

    def sees_background(self, colour: str) -> None:
        expect(self.page.locator("body")).to_have_css("background-color", colour)

    def confirm(self, answer: str) -> None:
        self.page.get_by_label("Confirmation").get_by_role("button", name=answer, exact=True).click()

    def question(self) -> Locator:
        return self.page.get_by_label("Question")

    def answer(self, **fields: str) -> None:
        for name, value in fields.items():
            self.question().get_by_label(name).fill(value)
        self.question().get_by_role("button", name="Answer").click()

    def cancel_question(self) -> None:
        self.question().get_by_role("button", name="Cancel").click()

    def approve(self, arguments: dict[str, Any]) -> None:
        self.question().get_by_label("Arguments").fill(json.dumps(arguments))
        self.question().get_by_role("button", name="Approve").click()

    def sees_done_plan(self, steps: int) -> None:
        expect(self.page.get_by_label("Plan").get_by_text("☑")).to_have_count(steps)

    def sees_ingredients(self, *names: str) -> None:
        expect(self.page.get_by_label("State").get_by_role("listitem")).to_have_text(list(names))

    def rename_recipe(self, title: str) -> None:
        self.page.get_by_label("Recipe title").fill(title)

    def sees_drawing(self) -> None:
        """Wait until an image that a tool returned is drawn."""
        expect(self.messages().locator(".card img")).to_have_js_property("naturalWidth", 16)

    # Threads

    def thread_row(self, name: str) -> Locator:
        return self.page.get_by_label("Threads").get_by_role("listitem").filter(has_text=name)

    def thread_name(self) -> str:
        """Return what the row of this thread contains: without a title, its id; with one, what the scenario sent."""
        return self.thread_id[:8]

    def new_thread(self) -> None:
        self.page.get_by_role("button", name="New thread").click()
        self.is_idle()

    def open_thread(self, name: str) -> None:
        self.thread_row(name).get_by_role("button").first.click()

    def rename_thread(self, name: str, title: str) -> None:
        self.page.once("dialog", lambda dialog: dialog.accept(title))
        self.thread_row(name).get_by_role("button", name="Rename").click()

    def delete_thread(self, name: str) -> None:
        self.thread_row(name).get_by_role("button", name="Delete").click()


class AgUiClient(FrontEnd):
    title = "@ag-ui/client"
    recipe = "ag-ui-client"
    packages = ("@ag-ui/client", "react")
    unsupported: ClassVar[dict[str, str]] = {
        "A2UI surface": "the package draws nothing, and the recipe has no A2UI renderer",
        "two cuts without loss": NO_RECONNECT,
    }


class CopilotKit(FrontEnd):
    """CopilotKit's chat component, straight to Aguila, from another origin and with a header of the page's own."""

    title = "CopilotKit"
    recipe = "copilotkit"
    query: ClassVar[dict[str, str]] = {"header": "X-Tenant:acme"}
    packages = ("@copilotkit/react-core", "@ag-ui/client", "react")
    serve_options = ("--for", "copilotkit")
    unsupported: ClassVar[dict[str, str]] = {"two cuts without loss": NO_RECONNECT}
    partly: ClassVar[dict[str, str]] = {"image result": IMAGE_AS_TEXT}

    def server_address(self, aguila: str) -> str:
        return f"{aguila}/copilotkit"

    def messages(self) -> Locator:
        return self.page.get_by_test_id("copilot-chat")

    def composer(self) -> Locator:
        return self.page.get_by_test_id("copilot-chat-textarea")

    def send(self, text: str) -> None:
        self.composer().fill(text)
        self.page.get_by_test_id("copilot-send-button").click()

    def is_idle(self) -> None:
        """Wait until the page is connected and no run is in progress: the button sends."""
        expect(self.page.locator("[data-copilot-running=false]")).to_be_visible()

    def stop(self) -> None:
        self.page.get_by_test_id("copilot-send-button").click()

    def sees_drawing(self) -> None:
        self.sees("[image: image/png]")


class CopilotKitSingleEndpoint(CopilotKit):
    title = "CopilotKit, single endpoint"
    query: ClassVar[dict[str, str]] = {"endpoint": "single"}


class CopilotKitV1(CopilotKit):
    """The hooks and the chat of CopilotKit v1, with interrupts in both forms that they listen to."""

    title = "CopilotKit, v1 API"
    packages = ("@copilotkit/react-core", "@copilotkit/react-ui", "@ag-ui/client")
    query: ClassVar[dict[str, str]] = {"api": "v1"}
    unsupported: ClassVar[dict[str, str]] = {
        **CopilotKit.unsupported,
        **dict.fromkeys(
            ("thread list", "thread rename", "thread delete"), "v1 has no thread list; v2 has `useThreads`"
        ),
        **dict.fromkeys(
            ("reasoning", "activity", "A2UI surface"), "the v1 chat draws neither reasoning nor activities"
        ),
        "interrupt, cancelled": "`useLangGraphInterrupt` can answer, not cancel",
    }
    notes: ClassVar[dict[str, str]] = {
        "interrupt, answered": "with both forms of an interrupt; the question is shown once",
    }

    def messages(self) -> Locator:
        return self.page.locator(".copilotKitMessages")

    def is_idle(self) -> None:
        expect(self.page.locator("[data-test-id=copilot-chat-ready]")).to_be_visible()

    def sees_error(self) -> None:
        expect(self.page.get_by_text("The agent failed.").first).to_be_visible()


class CopilotKitNode(CopilotKit):
    """CopilotKit with its own runtime in Node, and an HttpAgent that points at Aguila."""

    title = "CopilotKit, Node runtime"
    packages = ("@copilotkit/react-core", "@copilotkit/runtime", "@ag-ui/client")
    query: ClassVar[dict[str, str]] = {}
    served_app = "node_app:app"
    unsupported: ClassVar[dict[str, str]] = {
        **CopilotKit.unsupported,
        "thread rename": "the runtime keeps threads in memory and cannot rename them",
        "thread delete": "the runtime keeps threads in memory and cannot delete one of them",
    }
    notes: ClassVar[dict[str, str]] = {
        "stop cancels the run": "the runtime closes its connection; `App(cancel_unwatched_after=1)` ends the run",
    }
    runtime_url = ""

    @classmethod
    @contextmanager
    def running(cls, server: AguilaProcess, origin: str) -> Iterator[None]:
        port = free_port()
        environment = {
            **os.environ,
            "AGUILA_URL": server.url,
            "PORT": str(port),
            "COPILOTKIT_TELEMETRY_DISABLED": "true",
        }
        command = ["node", "runtime.mjs"]
        folder = RECIPES / cls.recipe / "runtime"
        install(folder)
        process = subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            assert process.stdout is not None
            assert b"CopilotKit runtime on" in process.stdout.readline()
            cls.runtime_url = f"http://127.0.0.1:{port}/api/copilotkit"
            yield
        finally:
            process.kill()
            process.wait(60)

    def server_address(self, aguila: str) -> str:
        return self.runtime_url


class AssistantUi(FrontEnd):
    title = "assistant-ui"
    recipe = "assistant-ui"
    packages = ("@assistant-ui/react", "@assistant-ui/react-ag-ui", "@ag-ui/client")
    serve_options = ("--for", "assistant-ui")
    unsupported: ClassVar[dict[str, str]] = {
        "activity": "assistant-ui draws no activities but A2UI surfaces and MCP apps",
        "two cuts without loss": NO_RECONNECT,
    }
    partly: ClassVar[dict[str, str]] = {"image result": IMAGE_AS_TEXT}
    notes: ClassVar[dict[str, str]] = {
        "subagents": "assistant-ui mixes texts that arrive in parallel, so the server sends one after the other",
    }

    def sees_drawing(self) -> None:
        self.sees("[image: image/png]")

    def attach(self, name: str, data: bytes) -> None:
        files: Any = [{"name": name, "mimeType": "image/png", "buffer": data}]
        with self.page.expect_file_chooser() as chooser:
            self.page.get_by_role("button", name="Image…").click()
        chooser.value.set_files(files)
        expect(self.page.get_by_text("1 image")).to_be_visible()


class TDesign(FrontEnd):
    title = "TDesign Chat"
    recipe = "tdesign"
    packages = ("@tdesign-react/chat", "tdesign-web-components", "react")
    serve_options = ("--for", "tdesign")
    unsupported: ClassVar[dict[str, str]] = {
        "A2UI surface": "TDesign Chat has no A2UI renderer",
        "two cuts without loss": NO_RECONNECT,
    }
    partly: ClassVar[dict[str, str]] = {"image result": IMAGE_AS_TEXT}
    notes: ClassVar[dict[str, str]] = {
        "reasoning": "TDesign Chat reads THINKING_* only; the recipe maps REASONING_* in `onMessage`",
        **dict.fromkeys(
            ("interrupt, answered", "interrupt, cancelled", "interrupt, after a reload"),
            "TDesign Chat has no interrupts; the recipe draws those of RUN_FINISHED",
        ),
        "approval with edited arguments": "TDesign Chat drops results of calls of earlier runs; the recipe keeps them",
        "run error": "TDesign Chat replaces the text of the run by the error; the recipe keeps both",
        "subagents": "TDesign Chat mixes texts that arrive in parallel, so the server sends one after the other",
    }

    def composer(self) -> Locator:
        return self.page.locator("t-chat-sender textarea")

    def _button(self) -> Locator:
        """The button that sends, or stops while a run is in progress. It has an icon and no name."""
        return self.page.locator("t-chat-sender .t-chat__input__button")

    def send(self, text: str) -> None:
        self.composer().fill(text)
        self._button().click()

    def is_idle(self) -> None:
        expect(self._button().locator(".t-icon-send-filled")).to_be_visible()

    def stop(self) -> None:
        expect(self._button().locator(".t-icon-stop")).to_be_visible()
        self._button().click()

    def attach(self, name: str, data: bytes) -> None:
        super().attach(name, data)
        expect(self.page.locator("t-chat-sender t-filecard")).to_have_count(1)

    def sees_drawing(self) -> None:
        self.sees("[image: image/png]")


class TanStackAi(FrontEnd):
    title = "TanStack AI"
    recipe = "tanstack-ai"
    packages = ("@tanstack/ai-client", "@tanstack/ai-react", "@tanstack/ai")
    serve_options = ("--for", "tanstack")
    unsupported: ClassVar[dict[str, str]] = {
        "shared state": "TanStack AI has no shared state: STATE_* events reach `onChunk` only",
        "activity": "TanStack AI has no activities: ACTIVITY_* events reach `onChunk` only",
        "A2UI surface": "TanStack AI has no activities: ACTIVITY_* events reach `onChunk` only",
    }
