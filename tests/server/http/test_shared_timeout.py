"""One timer ends many waits."""

from __future__ import annotations

import asyncio

import pytest
from waiting import DEADLINE, let_tasks_run

from aguila.server.http.shared_timeout import SharedTimeout

pytestmark = pytest.mark.anyio


async def result(value: int) -> int:
    await asyncio.sleep(0)
    return value


async def test_a_result_that_comes_in_time_is_returned() -> None:
    timeout = SharedTimeout(DEADLINE)
    assert await asyncio.gather(*(timeout.wait(result(number)) for number in range(3))) == [0, 1, 2]


async def test_every_wait_that_is_too_long_ends_and_the_next_one_too() -> None:
    timeout = SharedTimeout(0.01)
    for _ in range(2):
        waits = [asyncio.create_task(timeout.wait(asyncio.Event().wait())) for _ in range(3)]
        await asyncio.wait(waits, timeout=DEADLINE)
        assert [type(wait.exception()) for wait in waits] == [TimeoutError] * 3


async def test_a_later_wait_ends_although_an_earlier_one_had_its_result() -> None:
    timeout = SharedTimeout(0.05)
    early = asyncio.create_task(timeout.wait(result(1)))
    late = asyncio.create_task(timeout.wait(asyncio.Event().wait()))
    assert await early == 1
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(asyncio.shield(late), DEADLINE)


async def test_a_task_that_is_cancelled_by_others_stays_cancelled() -> None:
    timeout = SharedTimeout(DEADLINE)
    task = asyncio.create_task(timeout.wait(asyncio.Event().wait()))
    await let_tasks_run()
    task.cancel()
    await asyncio.wait([task], timeout=DEADLINE)
    assert task.cancelled()
