r"""Client tools: plain functions that the agent may call. They run in the client; the run continues with the results.

aguila serve
python examples/10_client_tools.py
"""

import os
from typing import Literal

from aguila import Client, ToolError, tool

URL = os.environ.get("AGUILA_URL", "http://127.0.0.1:8000")


def get_weather(city: str, unit: Literal["celsius", "fahrenheit"] = "celsius") -> dict:
    """The weather in a city.

    Args:
        city: Its name.
        unit: Of the temperature.
    """
    print(f"get_weather({city!r}, {unit!r})")
    return {"city": city, "degrees": 24, "unit": unit}


@tool(name="delete_everything", description="Deletes all files of the user")
def refuse() -> None:
    raise ToolError("The user does not want that.")  # sent to the agent as the result


with Client(URL) as client:
    thread = client.thread(tools=[get_weather, refuse])
    result = thread.run("Call my frontend tools").result()  # repeats until no call is pending
    for message in result.messages:
        if message.role == "tool":
            print("answered:", message.error or message.content)
    print(result.text)
