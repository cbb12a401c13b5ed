"""50,000 inputs for each decoder, always the same ones; ``make fuzz`` tries new ones for longer."""

import corpus
import driver
import pytest
from cpu_bounds import check_cpu_time
from driver import TARGETS, Found, Target, fuzz

from aguila.codec import EventDecoder, decode
from aguila.codec.json.text import parse_json
from aguila.codec.jsonl import JSONLDecoder
from aguila.codec.sse import SSEDecoder
from aguila.protocol import RunAgentInput

COUNT, SHARDS = 50_000, 2


@pytest.mark.parametrize("shard", range(SHARDS))
@pytest.mark.parametrize("name", TARGETS)
def test_no_input_makes_a_decoder_crash_hang_or_raise_anything_but_our_errors(name, shard):
    count = COUNT // SHARDS
    assert fuzz(TARGETS[name], seed=1, first=shard * count, count=count) == count


@pytest.mark.parametrize("name", TARGETS)
def test_a_seed_and_a_number_determine_the_input(name):
    target = TARGETS[name]
    inputs = [target.input(1, number) for number in range(50)]
    assert inputs == [target.input(1, number) for number in range(50)]
    assert len(set(inputs)) > 40


def test_a_target_that_fails_is_reported_with_what_repeats_it():
    def breaks(data: bytes) -> None:
        raise KeyError(data[:1])

    target = Target("broken", breaks, lambda: [b"x"], TARGETS["json"].mutations)
    with pytest.raises(Found, match=r"KeyError.*\n.*--target broken --seed 3 --only 7\n"):
        fuzz(target, seed=3, first=7, count=1)


def test_an_input_that_takes_too_long_is_reported(monkeypatch):
    monkeypatch.setattr(driver, "SLOWEST", 0.0)
    with pytest.raises(Found, match=r" s\n.*--target json --seed 3 --only 7\n"):
        driver.check(TARGETS["json"], 3, 7)


def run_input(event: bytes) -> bytes:
    state = event[event.index(b"[") : -1]
    return b'{"threadId":"t","runId":"r","messages":[],"tools":[],"context":[],"forwardedProps":{},"state":%b}' % state


READERS = {
    "EventDecoder": lambda event: EventDecoder().feed(event),
    "strict": lambda event: EventDecoder(strict=True).feed(event),
    "an event with an unknown member": lambda event: EventDecoder(warn=lambda notice: None).feed(
        event.replace(b"{", b'{"unknown":1,', 1)
    ),
    "RunAgentInput": lambda event: decode(run_input(event), RunAgentInput),
    "SSE": lambda event: SSEDecoder().feed(b"data: %b\n\n" % event),
    "JSON Lines": lambda event: JSONLDecoder().feed(event + b"\n"),
    "plain JSON": lambda event: parse_json(event, strict=False, warn=lambda notice: None),
}


@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("name", corpus.bombs())
def test_a_decoder_takes_less_than_half_a_second_of_cpu_time_per_megabyte(name, reader):
    event = corpus.bombs()[name]
    assert READERS[reader](event)
    check_cpu_time(lambda: READERS[reader](event), 0.5 * len(event) / 1e6)
