"""A CrewAI flow behind ``App``, with the model of scripted_chat.py."""

from __future__ import annotations

import json
import sys
from typing import Any

import script
from ag_ui_crewai import CopilotKitState, agui_feedback_provider, copilotkit_emit_tool_result, copilotkit_stream
from crewai.flow import Flow, human_feedback, listen, router, start
from litellm import acompletion

from aguila import App
from aguila.frameworks import crewai

PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}}
ADD = {"type": "function", "function": {"name": "add", "description": "Add two numbers.", "parameters": PARAMETERS}}
MAIL = {"type": "function", "function": {"name": "send_mail", "description": "Send a mail.", "parameters": {}}}
COUNT = {"type": "function", "function": {"name": "count", "description": "Count one further.", "parameters": {}}}


class State(CopilotKitState):
    count: int = 0


class Scripted(Flow[State]):
    @start()
    async def chat(self) -> None:
        await self.converse()

    @router(chat)
    def route(self) -> str:
        calls = _plain(self.state.messages[-1]).get("tool_calls") or ()
        return "mail" if any(call["function"]["name"] == "send_mail" for call in calls) else "end"

    @listen("mail")
    @human_feedback(message="Send it?", provider=agui_feedback_provider)
    def ask(self) -> str:
        return "a mail"

    @listen(ask)
    async def send(self, answer: Any) -> None:
        (call,) = _plain(self.state.messages[-1])["tool_calls"]
        result = script.send_mail() if json.loads(answer.feedback) == {"approved": True} else "not sent"
        await self.answer(call["id"], result)
        await self.converse()

    async def answer(self, call_id: str, result: str) -> None:
        await copilotkit_emit_tool_result(tool_call_id=call_id, content=result)
        self.state.messages.append({"role": "tool", "tool_call_id": call_id, "content": result})

    async def converse(self) -> None:
        while True:
            response = await copilotkit_stream(
                await acompletion(
                    model="openai/scripted",
                    api_base=script.MODEL_URL,
                    api_key="key",
                    messages=[_plain(message) for message in self.state.messages],
                    tools=[ADD, COUNT, MAIL, *self.state.copilotkit.actions],
                    stream=True,
                    num_retries=0,
                )
            )
            answer: Any = response.choices[0].message
            self.state.messages.append(answer)
            own = [call for call in answer.get("tool_calls") or () if call["function"]["name"] in ("add", "count")]
            for call in own:
                await self.answer(call["id"], self.call(call["function"]))
            if not own:
                return

    def call(self, function: Any) -> str:
        if function["name"] == "count":
            self.state.count += 1
            return "counted"
        arguments = json.loads(function["arguments"])
        return str(script.add(arguments["a"], arguments["b"]))


def _plain(message: Any) -> Any:
    return message if isinstance(message, dict) else message.model_dump()


app = App(crewai.agent(Scripted()), **script.app_options())

if __name__ == "__main__":
    script.serve_app(app, int(sys.argv[1]))
