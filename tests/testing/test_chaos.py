"""The chaos transport: its faults depend on the seed only, and clients recover from them."""

from __future__ import annotations

from typing import Any

import pytest

from aguila.client import Client, Reconnect
from aguila.client.transports.asgi import ASGITransport
from aguila.client.transports.base import Request
from aguila.client.transports.threaded import ThreadedTransport
from aguila.errors import StreamTruncated, TransportFailed
from aguila.testing import Call, Chaos, ScriptedAgent, client_for
from aguila.testing.chaos import Faults, _Mangler

pytestmark = pytest.mark.anyio

PATIENT = Reconnect(attempts=20, initial=0.0001, longest=0.001)
BODY = bytes(range(256)) * 8
SCRIPT = ["A long answer, " * 20, Call("look", {"at": "eagles"}, result="two"), "and its end."]


class Fixed:
    """A transport that answers with the same bytes, in pieces of one size."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.closed = 0

    async def send(self, request: Request) -> Any:
        return _Answer(self)

    async def close(self) -> None:
        self.closed += 1


class _Answer:
    status = 200
    headers: dict[str, str] = {}  # noqa: RUF012

    def __init__(self, transport: Fixed) -> None:
        self.transport = transport
        self.rest = BODY

    async def read(self) -> bytes:
        piece, self.rest = self.rest[: self.transport.size], self.rest[self.transport.size :]
        return piece

    async def close(self) -> None:
        self.transport.closed += 1


REQUEST = Request(method="POST", url="http://x", headers={})


async def pieces_of(chaos: Chaos, size: int = 4096) -> tuple[list[bytes], str | None]:
    transport = chaos.wrap(Fixed(size))
    pieces: list[bytes] = []
    try:
        answer = await transport.send(REQUEST)
        while piece := await answer.read():
            pieces.append(piece)
    except TransportFailed as error:
        return pieces, error.message
    return pieces, None


@pytest.mark.parametrize("seed", range(12))
async def test_the_same_seed_does_the_same_thing(seed: int) -> None:
    first, again = [await pieces_of(Chaos(seed)) for _ in range(2)]
    assert first == again
    assert BODY.startswith(b"".join(first[0]))


async def test_other_seeds_and_other_requests_meet_other_fates() -> None:
    assert len({tuple((await pieces_of(Chaos(seed, cuts=0)))[0]) for seed in range(8)}) == 8
    chaos = Chaos(1, cuts=100, chance=0.7)
    assert len({chaos.next().cut_at for _ in range(40)}) > 15


async def test_all_bytes_arrive_in_small_pieces_if_nothing_is_cut() -> None:
    pieces, problem = await pieces_of(Chaos(3, cuts=0))
    assert (b"".join(pieces), problem) == (BODY, None)
    assert max(map(len, pieces)) <= 64
    assert len(pieces) > len(BODY) / 64


@pytest.mark.parametrize("size", [1, 7, 100, 4096])
async def test_where_it_cuts_does_not_depend_on_how_the_bytes_came(size: int) -> None:
    chaos = Chaos(5, cuts=1, chance=1.0, within=900)
    expected = chaos.next().cut_at
    assert expected is not None
    assert expected >= 0
    pieces, problem = await pieces_of(Chaos(5, cuts=1, chance=1.0, within=900), size)
    assert len(b"".join(pieces)) == expected
    assert problem == f"chaos: cut after {expected} bytes"


async def test_without_splitting_pieces_come_as_they_are() -> None:
    pieces, _ = await pieces_of(Chaos(3, cuts=0, split=False), 100)
    assert {len(piece) for piece in pieces[:-1]} == {100}


def test_no_more_is_cut_than_was_allowed_and_what_was_done_is_kept() -> None:
    chaos = Chaos(2, cuts=4, chance=1.0)
    fates = [chaos.next() for _ in range(10)]
    assert chaos.done == fates
    assert [fate.cut_at is not None for fate in fates] == [True] * 4 + [False] * 6


async def test_a_lost_request_is_never_sent_and_a_lost_answer_is_hung_up_on() -> None:
    for cut_at, closed in ((-1, 0), (-2, 1)):
        chaos, inner = Chaos(0), Fixed(10)
        chaos.next = lambda cut_at=cut_at: Faults(cut_at=cut_at)  # type: ignore[method-assign]
        with pytest.raises(TransportFailed, match="lost"):
            await chaos.wrap(inner).send(REQUEST)
        assert inner.closed == closed


async def test_delays_are_drawn_from_the_seed_and_waited_for() -> None:
    async def paused(seed: int) -> list[float]:
        waited: list[float] = []

        async def sleep(seconds: float) -> None:
            waited.append(seconds)

        await pieces_of(Chaos(seed, cuts=0, delay=0.5, sleep=sleep))
        return waited

    first, again = await paused(1), await paused(1)
    assert first == again
    assert len(first) > 30
    assert all(0 <= pause <= 0.5 for pause in first)


def test_a_mangler_gives_every_byte_once() -> None:
    mangler = _Mangler(Faults(seed="x"))
    got = b""
    for start in range(0, len(BODY), 50):
        mangler.put(BODY[start : start + 50])
        while not mangler.is_empty:
            got += mangler.take()
    assert got == BODY


@pytest.mark.parametrize("seed", range(25))
async def test_a_client_that_reconnects_sees_the_same_conversation_whatever_is_cut(seed: int) -> None:
    chaos = Chaos(seed, cuts=0)
    async with client_for(ScriptedAgent("Warm up.", SCRIPT), wrap=chaos.wrap, reconnect=PATIENT) as client:
        thread = client.thread("t")
        # A client learns from its first answer that the server gives ids; only then can it reconnect.
        await thread.run("hello")
        chaos.allow(6, chance=0.8, within=1500)
        result = await thread.run("go")
        assert result.text == "and its end."
        assert [m.role for m in result.messages] == ["user", "assistant", "tool", "assistant"] or [
            m.role for m in result.messages
        ] == ["user", "assistant", "assistant", "tool", "assistant"]
        assert "".join(m.content or "" for m in result.messages if m.role == "assistant") == (
            "A long answer, " * 20 + "and its end."
        )


async def test_without_reconnecting_a_cut_is_a_truncated_stream() -> None:
    chaos = Chaos(5, cuts=1, chance=1.0, within=900)
    async with client_for(ScriptedAgent(SCRIPT), wrap=chaos.wrap, reconnect=None) as client:
        with pytest.raises(StreamTruncated, match="chaos: cut after"):
            await client.thread().run("go")


def test_the_sync_twin_cuts_at_the_same_byte() -> None:
    from aguila import App
    from aguila.store import MemoryStore

    app = App(ScriptedAgent(SCRIPT), store=MemoryStore())
    chaos = Chaos(5, cuts=1, chance=1.0, within=900)
    transport = chaos.wrap_sync(ThreadedTransport(lambda: ASGITransport(app)))
    expected = Chaos(5, cuts=1, chance=1.0, within=900).next().cut_at
    with (
        Client("http://agent.test", transport=transport, reconnect=None) as client,
        pytest.raises(StreamTruncated, match=f"chaos: cut after {expected} bytes"),
    ):
        client.thread().run("go").result()
    assert chaos.done[0].cut_at is not None
