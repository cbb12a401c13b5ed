r"""Create events, send them in three ways from an agent that uses chat types, and inspect what arrives.

python examples/19_events.py
"""

import asyncio

from aguila.chat import ChatUpdate, TextContent, as_chat_updates, as_event_stream, event_content
from aguila.codec import decode_event, encode
from aguila.protocol import CustomEvent, EventType, RunAgentInput, StateSnapshotEvent, TextMessageContentEvent, replace


def create_and_inspect() -> None:
    event = TextMessageContentEvent(message_id="m1", delta="Hello")  # the type needs no argument
    print(encode(event).decode())
    print(replace(event, delta="Bye").delta, event.delta)  # events are immutable: replace makes a copy
    match decode_event(encode(event)):
        case TextMessageContentEvent(message_id=message_id, delta=delta):
            print(f"decoded {EventType.TEXT_MESSAGE_CONTENT}: {message_id} {delta}")
        case other:  # None is an event type that this version does not know
            print("unexpected:", other)


def wrap_and_unwrap() -> None:
    content = event_content.create(CustomEvent(name="confetti", value={"colour": "red"}))
    print(content.media_type, event_content.is_event(content), event_content.try_get(content))
    print(event_content.try_get(TextContent("no event")))


async def agent():
    """Send the same event three times. A Run's agent may yield the same values."""
    confetti = CustomEvent(name="confetti", value="red")
    yield "Text becomes a message. "
    yield confetti  # 1. the event itself
    yield ChatUpdate(raw_representation=confetti)  # 2. as the raw representation of an update
    yield ChatUpdate(contents=[event_content.create(confetti)])  # 3. as a content, beside others
    yield StateSnapshotEvent(snapshot={"done": True})


async def main() -> None:
    create_and_inspect()
    wrap_and_unwrap()
    events = as_event_stream(agent(), RunAgentInput(thread_id="t1", run_id="r1", messages=[]))
    async for update in as_chat_updates(events):
        match update.raw_representation:  # every update has the event that it comes from
            case CustomEvent(name=name, value=value):
                print("custom:", name, value)
            case StateSnapshotEvent(snapshot=state):
                print("state:", state)
            case event:
                print(type(event).__name__, update.text)


asyncio.run(main())
