r"""A client that streams an answer, answers a question and uploads an image. It works with any AG-UI agent.

aguila serve
python examples/09_client.py
"""

import asyncio
import os
import struct
import zlib

from aguila import AsyncClient
from aguila.errors import RunFailed

URL = os.environ.get("AGUILA_URL", "http://127.0.0.1:8000")


def png(width: int, height: int) -> bytes:
    """Make a grey image."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = chunk(b"IDAT", zlib.compress((b"\0" + b"\x80" * width) * height))
    return b"\x89PNG\r\n\x1a\n" + head + rows + chunk(b"IEND", b"")


async def main() -> None:
    async with AsyncClient(URL) as client:
        thread = client.thread()
        async for event in thread.run("Show me text"):  # every event, typed and verified, as it comes
            if event.type == "TEXT_MESSAGE_CONTENT":
                print(event.delta, end="", flush=True)
        print()

        result = await thread.run("Show me an interrupt")  # or wait for the result
        if result.outcome == "interrupt":
            (question,) = thread.interrupts
            print("Asked:", question.message)
            result = await thread.resume({question.id: {"colour": "green"}})
        print(result.text)

        image = await client.upload(png(3, 2), filename="grey.png", thread_id=thread.id)
        result = await thread.run(["What is on this image?", image])
        print(next(m.content for m in result.messages if m.role == "assistant" and m.content))

        try:
            await thread.run("Show me an error")
        except RunFailed as failure:  # only a RUN_ERROR raises this
            print("Failed:", failure.code)


asyncio.run(main())
