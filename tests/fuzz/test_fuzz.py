"""200,000 inputs for each decoder, always the same ones; ``make fuzz`` tries new ones for longer."""

import driver
import pytest
from driver import TARGETS, Found, Target, fuzz

COUNT, SHARDS = 200_000, 4


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
