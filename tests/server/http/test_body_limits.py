"""Large request bodies share a byte budget; small ones never wait."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from serving import Background, Gate, run_input, serving, types
from waiting import DEADLINE, let_tasks_run, wait_until

from aguila import App
from aguila.server import Limits
from aguila.server.config.errors import Rejected
from aguila.server.http import budget as body_limits
from aguila.server.http.body import read_body
from aguila.server.http.budget import BodyBudget, Reservation
from aguila.server.http.request import Request

pytestmark = pytest.mark.anyio


@contextmanager
def reserving(budget: BodyBudget, sender: Any = None) -> Iterator[Reservation]:
    """Reserve bytes for a request that is answered at the end of the block."""
    reservation = Reservation(budget, sender)
    try:
        yield reservation
    finally:
        reservation.end()


async def test_bodies_beyond_the_budget_wait_in_their_order() -> None:
    budget = BodyBudget(100)
    order: list[str] = []

    async def come(name: str, size: int) -> None:
        await budget.acquire(size)
        order.append(name)

    coming = [asyncio.ensure_future(come(name, size)) for name, size in [("a", 60), ("b", 50), ("c", 10), ("d", 40)]]
    await let_tasks_run()
    assert order == ["a"]  # "c" would fit, but may not overtake
    budget.release(60)
    await let_tasks_run()
    assert order == ["a", "b", "c", "d"]
    budget.release(50)
    budget.release(10)
    budget.release(40)
    await asyncio.gather(*coming)
    assert not budget.has_waiting


async def test_a_body_larger_than_the_budget_is_read_alone() -> None:
    budget = BodyBudget(100)
    await budget.acquire(1)
    large = asyncio.ensure_future(budget.acquire(1000))
    await let_tasks_run()
    assert not large.done()
    budget.release(1)
    await large
    small = asyncio.ensure_future(budget.acquire(1))
    await let_tasks_run()
    assert not small.done()
    budget.release(1000)
    await small


async def test_a_request_that_is_cancelled_while_waiting_leaves_its_place_to_the_next() -> None:
    budget = BodyBudget(100)
    await budget.acquire(50)
    first, second = asyncio.ensure_future(budget.acquire(80)), asyncio.ensure_future(budget.acquire(50))
    await let_tasks_run()
    first.cancel()
    await let_tasks_run()
    assert second.done()
    assert not budget.has_waiting


async def test_a_request_that_is_cancelled_as_bytes_become_free_leaves_its_place_to_the_next() -> None:
    budget = BodyBudget(100)
    await budget.acquire(100)
    first, second = asyncio.ensure_future(budget.acquire(80)), asyncio.ensure_future(budget.acquire(50))
    await let_tasks_run()
    first.cancel()
    budget.release(100)
    await let_tasks_run()
    assert first.cancelled()
    assert second.done()


async def test_a_request_that_is_cancelled_as_it_is_admitted_releases_its_reservation() -> None:
    budget = BodyBudget(100)
    await budget.acquire(100)
    late = asyncio.ensure_future(budget.acquire(100))
    await let_tasks_run()
    budget.release(100)
    late.cancel()
    await let_tasks_run()
    assert late.cancelled()
    await asyncio.wait_for(budget.acquire(100), DEADLINE)


async def test_a_share_is_given_back_once_at_the_end_of_its_block_or_when_its_run_ends() -> None:
    budget = BodyBudget(100)
    with reserving(budget) as reservation:
        await reservation.reserve(100)
        reservation.release()
    await asyncio.wait_for(budget.acquire(100), DEADLINE)
    budget.release(100)
    ended: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    with reserving(budget) as reservation:
        await reservation.reserve(100)
        reservation.release_after(ended)
    waiting = asyncio.ensure_future(budget.acquire(100))
    await let_tasks_run()
    assert not waiting.done()
    ended.set_result(None)
    await asyncio.wait_for(waiting, DEADLINE)


async def test_a_share_is_lent_to_a_long_run_only_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "MAX_HOLD", 0.001)
    budget = BodyBudget(100)
    with reserving(budget) as reservation:
        await reservation.reserve(100)
        reservation.release_soon()
        reservation.release_after(asyncio.get_running_loop().create_future())
    await asyncio.wait_for(budget.acquire(100), DEADLINE)


async def test_a_body_that_stops_coming_loses_its_share_only_if_others_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "_GRACE", 0.001)
    budget = BodyBudget(100)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    with reserving(budget) as reservation:
        await reservation.reserve(100)
        reading = asyncio.ensure_future(reservation.receive(messages.get))
        while not reservation.received and not reading.done():
            await asyncio.sleep(0.002)
            await messages.put({"type": "http.request", "body": b"x", "more_body": True})
        assert (await reading)["body"] == b"x"  # no request waits, so the body may be slow
        waiting = asyncio.ensure_future(budget.acquire(100))
        await let_tasks_run()
        while not messages.empty():
            messages.get_nowait()
        with pytest.raises(Rejected, match="too_slow"):
            await asyncio.wait_for(reservation.receive(messages.get), DEADLINE)
    await asyncio.wait_for(waiting, DEADLINE)


def test_large_requests_wait_for_each_other_and_small_ones_do_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "MAX_HOLD", 3600.0)
    gate = Gate()

    async def agent(run: Any) -> Any:
        if run.run_id == "first":
            await gate.wait()
        yield "done"

    text = random.Random(1).randbytes(800_000).hex()
    messages = [{"id": "m", "role": "user", "content": text}]
    app = App(agent, limits=Limits(buffered=2_000_000))
    with serving(app) as server, server.run(thread_id="1", run_id="first", messages=messages) as first:
        gate.await_reached()
        second, small = server.peer(), server.peer()
        with Background(lambda: second.events(thread_id="2", run_id="second", messages=messages)) as large:
            service: Any = app._service
            wait_until(lambda: service.body_budget.has_waiting)
            assert types(small.events(thread_id="3", run_id="small"))[-1] == "RUN_FINISHED"
            assert service.body_budget.has_waiting
            gate.open()
            assert types(first.rest())[-1] == "RUN_FINISHED"
            assert types(large.result())[-1] == "RUN_FINISHED"
        second.close()
        small.close()


def test_a_body_that_does_not_say_its_length_is_let_in_too() -> None:
    async def agent(run: Any) -> Any:
        yield str(len(run.messages[0].content))

    def pieces(run_id: str) -> Any:
        body = json.dumps(
            run_input(run_id=run_id, messages=[{"id": "m", "role": "user", "content": "x" * 3_000_000}])
        ).encode()
        for at in range(0, len(body), 100_000):
            yield body[at : at + 100_000]

    with serving(App(agent)) as server:
        for run_id in ("a", "b"):
            with server.stream(
                "POST", "/", content=pieces(run_id), headers={"content-type": "application/json"}
            ) as stream:
                assert "3000000" in [event.get("delta") for event in stream.rest()]


async def test_waiting_peers_take_turns() -> None:
    budget = BodyBudget(100)
    order: list[str] = []
    await budget.acquire(100)

    async def come(peer: str) -> None:
        await budget.acquire(100, peer)
        order.append(peer)
        budget.release(100)

    coming = [asyncio.ensure_future(come(peer)) for peer in ["flood"] * 20 + ["other", "third"]]
    await let_tasks_run()
    budget.release(100)
    await asyncio.gather(*coming)
    assert order[:4] == ["flood", "other", "third", "flood"]
    assert not budget.has_waiting


async def test_a_body_reserves_what_has_arrived_and_the_oldest_never_waits() -> None:
    mebibyte = 1024 * 1024
    budget = BodyBudget(6 * mebibyte)
    senders = [SimpleNamespace(peer=peer) for peer in "abc"]
    one, two, three = (reserving(budget, sender) for sender in senders)
    with one as oldest, two as second, three as third:
        for reservation in (oldest, second, third):
            await reservation.arrived(2 * mebibyte)
            assert reservation.size == 2 * mebibyte
        growing = asyncio.ensure_future(third.arrived(mebibyte))
        also_growing = asyncio.ensure_future(second.arrived(mebibyte))
        newcomer = asyncio.ensure_future(budget.acquire(mebibyte))
        await let_tasks_run()
        assert not growing.done()
        assert not also_growing.done()
        await asyncio.wait_for(oldest.arrived(4 * mebibyte), DEADLINE)  # beyond the budget
        oldest.release()
        await asyncio.wait_for(also_growing, DEADLINE)  # now the oldest, so it overtakes
        await asyncio.wait_for(growing, DEADLINE)
        assert not newcomer.done()
        second.release()
        await asyncio.wait_for(newcomer, DEADLINE)
        assert third.size == 3 * mebibyte
    assert not budget.has_waiting


async def test_a_body_that_is_cancelled_as_it_is_admitted_is_not_the_oldest_any_more() -> None:
    budget = BodyBudget(100)
    await budget.acquire(100)
    with reserving(budget) as cancelled, reserving(budget) as next_one:
        late = asyncio.ensure_future(cancelled.reserve(100))
        await let_tasks_run()
        budget.release(100)
        late.cancel()
        await let_tasks_run()
        assert cancelled.size == 0
        await asyncio.wait_for(next_one.reserve(100), DEADLINE)
        await asyncio.wait_for(next_one.reserve(100), DEADLINE)  # it is the oldest


def post(receive: Callable[[], Awaitable[Any]], reservation: Reservation, *headers: tuple[bytes, bytes]) -> Request:
    request = Request({"type": "http", "method": "POST", "headers": headers})
    request.receive, request.reservation = receive, reservation
    return request


async def test_the_headers_of_a_request_reserve_nothing() -> None:
    budget = BodyBudget(100)
    limits = Limits()
    for piece in (b"", b"x" * 1_000_000):
        with reserving(budget) as reservation:
            messages: asyncio.Queue[Any] = asyncio.Queue()
            if piece:
                await messages.put({"type": "http.request", "body": piece, "more_body": True})
            request = post(messages.get, reservation, (b"content-length", b"9000000"))
            reading = asyncio.ensure_future(read_body(request, limits.body))
            await let_tasks_run()
            assert reservation.size == 0
            await messages.put({"type": "http.request", "body": b"x" * 100_000, "more_body": True})
            await let_tasks_run()
            assert reservation.size == (2 * 1024 * 1024 if piece else 0)  # more than its first megabyte has arrived
            reading.cancel()
            await asyncio.wait([reading])


async def test_a_large_body_of_which_nothing_more_comes_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(body_limits, "_MAX_SILENCE", 0.003)
    monkeypatch.setattr(body_limits, "_GRACE", 0.001)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    with reserving(BodyBudget(100)) as reservation:
        await reservation.reserve(100)
        with pytest.raises(Rejected, match="too_slow"):  # although no request waits
            await asyncio.wait_for(reservation.receive(messages.get), DEADLINE)


@pytest.mark.parametrize("size", [1, 3_000_000])
async def test_a_body_that_comes_too_slowly_is_refused_although_no_other_waits(
    monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(body_limits, "_MAX_SILENCE", 0.2)
    monkeypatch.setattr(body_limits, "_LEAST_RATE", 100_000_000)
    pieces = iter([size])

    async def receive() -> Any:
        await asyncio.sleep(0.001)  # never silent
        return {"type": "http.request", "body": b" " * next(pieces, 1), "more_body": True}

    with reserving(BodyBudget(100_000_000)) as reservation, pytest.raises(Rejected, match="too_slow"):
        await asyncio.wait_for(read_body(post(receive, reservation), 100_000_000), DEADLINE)


@pytest.mark.parametrize("first", [b"", b"{"])
async def test_a_body_of_which_nothing_comes_is_refused(monkeypatch: pytest.MonkeyPatch, first: bytes) -> None:
    monkeypatch.setattr(body_limits, "_MAX_SILENCE", 0.001)
    messages: asyncio.Queue[Any] = asyncio.Queue()
    if first:
        await messages.put({"type": "http.request", "body": first, "more_body": True})
    with reserving(BodyBudget(100)) as reservation, pytest.raises(Rejected, match="too_slow"):
        await asyncio.wait_for(read_body(post(messages.get, reservation), 1_000), DEADLINE)
