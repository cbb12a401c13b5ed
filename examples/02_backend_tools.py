r"""Backend tools: the agent calls its own functions concurrently, and sends calls and results as they come.

    python examples/02_backend_tools.py
    curl -N http://127.0.0.1:8000 -H 'content-type: application/json' \
        -d '{"threadId": "t1", "runId": "r1", "messages":
             [{"id": "m1", "role": "user", "content": "Is it warmer in Lisbon or in Oslo?"}]}'
"""

import asyncio
import os

import uvicorn

from aguila import App, Run

DEGREES = {"Lisbon": 24, "Oslo": 11, "Quito": 18}


async def get_weather(city: str) -> dict:
    await asyncio.sleep(0.1)  # a real tool would call a service here
    return {"city": city, "degrees": DEGREES[city]}


async def call_weather(run: Run, city: str) -> dict:
    call = await run.tool_call("get_weather", {"city": city})
    result = await get_weather(city)
    await call.result(result)
    return result


async def agent(run: Run):
    question = run.user_text
    cities = [city for city in DEGREES if city in question]  # a model would decide this
    if not cities:
        return f"I know the weather of {', '.join(DEGREES)}."
    async with run.step("look up the weather"):
        found = await asyncio.gather(*(call_weather(run, city) for city in cities))
    warmest = max(found, key=lambda one: one["degrees"])
    return f"It is warmest in {warmest['city']}: {warmest['degrees']} degrees."


app = App(agent)

if __name__ == "__main__":
    uvicorn.run(app, port=int(os.environ.get("PORT", "8000")))
