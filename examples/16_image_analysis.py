r"""Images: a server that analyses inline and uploaded images, and a client that sends them.

python examples/16_image_analysis.py
python examples/16_image_analysis.py picture.png
"""

import asyncio
import mimetypes
import os
import struct
import sys
from pathlib import Path

import uvicorn

from aguila import App, ChatClient, Run
from aguila.chat import ChatMessage, DataContent, HostedFileContent, TextContent, UriContent
from aguila.protocol import FileSource
from aguila.server import Limits

PORT = int(os.environ.get("PORT", "8000"))


def describe(image: DataContent) -> str:
    name = image.additional_properties.get("filename", "an image")
    if image.data[:8] == b"\x89PNG\r\n\x1a\n":  # a model would analyse the image
        width, height = struct.unpack(">II", image.data[16:24])
        return f"{name}: {width} by {height} pixels, {image.media_type}\n"
    return f"{name}: {len(image.data)} bytes of {image.media_type}\n"


async def agent(run: Run):
    for message in (await run.chat_messages())[-1:]:  # bytes are decoded, uploads are loaded
        for content in message.contents:
            if isinstance(content, DataContent):
                yield describe(content)
            elif isinstance(content, UriContent):
                yield f"I do not fetch {content.uri}\n"
            elif isinstance(content, HostedFileContent):
                yield f"I do not have the file {content.file_id}\n"


async def ask(name: str, data: bytes) -> None:
    async with ChatClient(f"http://127.0.0.1:{PORT}") as client:
        media_type = mimetypes.guess_type(name)[0] or "application/octet-stream"
        inline = DataContent(data, media_type, additional_properties={"filename": name})
        response = await client.get_response(ChatMessage("user", [TextContent("What is this?"), inline]))
        print("inline:", response.text, end="")

        part = await client.client.upload(data, filename=name)  # uploaded once, used in several messages
        assert isinstance(part.source, FileSource)
        uploaded = HostedFileContent(part.source.value, additional_properties={"ag_ui_provider": part.source.provider})
        response = await client.get_response(ChatMessage("user", [TextContent("And this?"), uploaded]))
        print("uploaded:", response.text, end="")


# Without authentication every client can read all uploads, so this must be allowed explicitly.
app = App(agent, allow_anonymous=True, limits=Limits(body=64 << 20, upload=64 << 20))

if __name__ == "__main__":
    if len(sys.argv) > 1:
        picture = Path(sys.argv[1])
        asyncio.run(ask(picture.name, picture.read_bytes()))
    else:
        uvicorn.run(app, port=PORT)
