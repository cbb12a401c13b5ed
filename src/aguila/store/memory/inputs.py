"""The requests of a thread's runs in the memory store, each message once; see ``store/run_inputs.py``."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec

from aguila.store.run_inputs import MAX_DEPTH, CutInput, ListDelta, StoredJSON, compare_lists, join_input, read_list


class _Input(msgspec.Struct, frozen=True, gc=False):
    """A stored request. ``delta`` is its list of messages, a change of that of ``base``; None if ``body`` is whole."""

    body: StoredJSON
    base: str | None = None
    depth: int = 0
    delta: ListDelta | None = None


class Inputs:
    """The requests of all runs of a thread."""

    def __init__(self) -> None:
        self._inputs: dict[str, _Input] = {}
        self._messages: dict[bytes, StoredJSON] = {}

    def add(self, run_id: str, new: CutInput) -> int:
        """Store the request of a run; return its bytes, without inline files."""
        size = new.body.size
        if new.digests is None:
            self._inputs[run_id] = _Input(new.body)
            return size
        base = next(reversed(self._inputs), None)
        old = None if base is None else self._digests(base)
        if base is not None and old is not None and self._inputs[base].depth < MAX_DEPTH:
            delta = compare_lists(old, new.digests)
            self._inputs[run_id] = _Input(new.body, base, self._inputs[base].depth + 1, delta)
        else:
            delta = ListDelta((new.digests,))
            self._inputs[run_id] = _Input(new.body, delta=delta)
        size += len(delta.encode())
        for digest in delta.new:
            if digest not in self._messages:
                self._messages[digest] = new.messages[digest]
                size += new.messages[digest].size
        return size

    def join(self, run_id: str, file: Callable[[bytes], bytes]) -> bytes:
        """Return the request of a run. ``file`` returns an inline file."""
        return join_input(self._inputs[run_id].body, self._digests(run_id), self._messages.__getitem__, file)

    def all(self) -> Iterator[tuple[str, StoredJSON, bytes | None]]:
        """Iterate over run id, body and message digests of each request."""
        for run_id, stored in self._inputs.items():
            yield run_id, stored.body, self._digests(run_id)

    @property
    def messages(self) -> dict[bytes, StoredJSON]:
        """The messages of all requests, by their digests."""
        return dict(self._messages)

    def _digests(self, run_id: str) -> bytes | None:
        deltas: list[ListDelta] = []
        base: str | None = run_id
        while base is not None:
            stored = self._inputs[base]
            if stored.delta is None:
                return None
            deltas.append(stored.delta)
            base = stored.base
        return read_list(deltas)
