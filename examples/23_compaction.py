r"""Compact a stored stream: fewer events, the same conversation.

python examples/23_compaction.py
"""

from collections import Counter
from itertools import count

from aguila.codec.jsonl import encode_lines
from aguila.protocol import Event, StateSnapshotEvent
from aguila.stream import EventWriter, compact, consume

ids = (f"m{number}" for number in count(1))


def record_run() -> list[Event]:
    """Write a run as models stream it: many small deltas."""
    writer = EventWriter("t1", "r1", new_id=ids.__next__)
    log = [*writer.start(), *writer.emit(StateSnapshotEvent(snapshot={"progress": 0}))]
    log += writer.start_tool_call("look_up", tool_call_id="c1")
    for piece in ('{"q":', '"eag', 'les"}'):
        log += writer.write_tool_args("c1", piece)
    log += writer.end_tool_call("c1")
    log += writer.tool_result("c1", "two eagles")
    log += writer.start_text(message_id="answer")
    for number, word in enumerate(("There ", "are ", "two ", "eagles."), 1):
        log += writer.write_text("answer", word)
        log += writer.patch_state([{"op": "replace", "path": "/progress", "value": number}])
    return [*log, *writer.end_text("answer"), *writer.finish()]


def main() -> None:
    log = record_run()
    short = compact(log)
    size = sum(map(len, encode_lines(log))), sum(map(len, encode_lines(short)))
    print(f"{len(log)} events became {len(short)}; smaller: {size[1] < size[0]}")
    for event_type, number in Counter(event.type for event in log).items():
        print(f"  {event_type}: {number} -> {sum(event.type == event_type for event in short)}")

    before, after = consume(log), consume(short)
    print("same messages:", before.messages == after.messages, "same state:", before.state == after.state)
    print("compacted again:", compact(short) == short)


main()
