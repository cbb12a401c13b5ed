r"""Write a store for a database of your own: here a dict with compare-and-set. See docs/stores.md.

python examples/24_own_store.py
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from math import inf
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

import aguila.store as s
from aguila import App, Run
from aguila.errors import CursorExpired
from aguila.store import Store, StoreReader, contents, encoding, refusals, rules
from aguila.store.archives.archive import check_archive
from aguila.testing import client_for

T = TypeVar("T")
NO_CONTENTS: dict[str, None] = {"request": None, "messages": None, "turn": None}
"""What a ``RunRecord`` has only if it is wanted."""


class Thread(msgspec.Struct, frozen=True, kw_only=True):
    """A thread. Its ``record`` is what ``StoreReader.thread`` returns, with requests and turns."""

    record: s.ThreadRecord
    batches: tuple[s.Batch, ...] = ()
    values: Mapping[bytes, bytes] = {}
    """The stored bodies of messages and other values, by their digests."""
    raised: Mapping[str, int] = {}
    """By interrupt id, the position of the thread when it was raised last."""
    # Of the open run:
    lease_token: str = ""
    lease_seconds: float = 0.0
    launch: bytes | None = None
    begun: s.Batch | None = None
    viewers: Mapping[str, float] = {}
    """By process, until when it has viewers."""

    @property
    def running(self) -> s.RunRecord | None:
        return self.record.runs[-1] if self.record.runs and self.record.runs[-1].is_running else None

    @property
    def size(self) -> int:
        """The bytes that quotas count. A real store keeps this sum."""
        record = self.record
        parts = [event for batch in self.batches for event in batch.events] + [run.request for run in record.runs]
        parts += [run.turn.body for run in record.runs if run.turn] + [one.body for one in record.interrupts]
        parts += [one.value for one in record.effects] + [record.session, *self.values.values()]
        details = encoding.size_of_details(record.summary.title, record.summary.metadata)
        return sum(len(part or b"") for part in parts) + details


class File(msgspec.Struct, frozen=True):
    """A file. ``record.thread_ids`` are the threads that hold it."""

    record: s.FileRecord
    data: bytes


class State(msgspec.Struct):
    """All that is stored. The keys of ``threads`` and ``files`` are scope and id."""

    threads: dict[s.ThreadKey, Thread] = {}
    files: dict[tuple[str, str], File] = {}
    removed: dict[int, int] = {}
    """The last number of each removed thread, by its hash."""
    position: int = 0

    def copy(self) -> "State":
        return State(dict(self.threads), dict(self.files), dict(self.removed), self.position)

    def load(self, scope: str, thread_id: str) -> Thread:
        if (scope, thread_id) not in self.threads:
            raise refusals.no_thread(thread_id)
        return self.threads[scope, thread_id]

    def threads_of(self, scope: str) -> list[Thread]:
        """Return the threads of a scope, last updated first."""
        found = [thread for key, thread in self.threads.items() if key[0] == scope]
        return sorted(found, key=lambda thread: -thread.record.summary.position)

    def files_of(self, scope: str, thread_id: str | None = None) -> list[File]:
        found = [self.files[key] for key in sorted(self.files) if key[0] == scope]
        return [file for file in found if thread_id in (None, *file.record.thread_ids)]

    def scopes(self) -> list[str]:
        return sorted({scope for scope, _ in [*self.threads, *self.files]})

    def usage(self, *scopes: str) -> s.Usage:
        threads = [thread.size for scope in scopes for thread in self.threads_of(scope)]
        files = [file.record.size for scope in scopes for file in self.files_of(scope)]
        return s.Usage(threads=len(threads), files=len(files), bytes=sum(threads) + sum(files))

    # Changes

    def put(self, thread: Thread, *, touches: bool = False) -> s.ThreadSummary:
        """Write a thread, and what its summary says of its runs. ``touches`` moves it to the front of the list."""
        record, running = thread.record, thread.running
        self.position += touches
        summary = replace(
            record.summary,
            position=self.position if touches else record.summary.position,
            runs=len(record.runs),
            running=running and running.run_id,
            last=record.runs[-1].last,
            token=record.runs[-1].token,
        )
        key = (record.scope, summary.thread_id)
        self.threads[key] = replace(thread, record=replace(record, summary=summary))
        return summary

    def put_file(self, new: File) -> s.FileRecord:
        """Write a file, or the threads that hold it."""
        key = (new.record.scope, new.record.file_id)
        old = self.files.get(key, new)
        held = tuple({*old.record.thread_ids, *new.record.thread_ids})
        is_kept = old.record.is_kept or new.record.is_kept
        self.files[key] = File(replace(old.record, thread_ids=held, is_kept=is_kept), old.data)
        return replace(self.files[key].record, thread_ids=())

    def drop(self, scope: str, thread_id: str) -> None:
        """Remove a thread and the files that nothing else holds. Its last number is remembered."""
        thread = self.threads.get((scope, thread_id))
        if thread is not None:
            rules.check_delete(thread.running)
            name = encoding.hash_thread(scope, thread_id)
            self.removed[name] = max(self.removed.get(name, 0), thread.record.summary.last)
            del self.threads[scope, thread_id]
        for file in self.files_of(scope, thread_id):
            left = tuple(one for one in file.record.thread_ids if one != thread_id)
            del self.files[scope, file.record.file_id]
            if left or file.record.is_kept:
                self.put_file(File(replace(file.record, thread_ids=left), file.data))


class Database:
    """Stands for yours: one value, which is replaced only by a writer that has seen the newest one."""

    def __init__(self) -> None:
        self.version, self.state = 0, State()

    async def load(self) -> tuple[int, State]:
        await asyncio.sleep(0)  # where yours waits for the network
        return self.version, self.state

    async def swap(self, version: int, state: State) -> bool:
        await asyncio.sleep(0)
        if version != self.version:
            return False
        self.version, self.state = version + 1, state
        return True


class Reader(StoreReader):
    """The calls that read: of the store as it is now, or of one state of it (a snapshot)."""

    def __init__(self, state: State, monotonic: Callable[[], float]) -> None:
        self._state, self._monotonic = state, monotonic

    async def _load(self) -> State:
        return self._state

    async def thread(self, scope: str, thread_id: str, want: s.Want = s.Want()) -> s.ThreadRecord:
        state = await self._load()
        thread = state.load(scope, thread_id)
        record, now = thread.record, self._monotonic()
        unwanted = {**({} if want.requests else NO_CONTENTS), "turn": None}
        runs = [
            replace(run, **{**unwanted, "turn": run.turn if want.turns else None})
            for run in record.runs
            if run.number > want.runs_after and want.run_id in (None, run.run_id)
        ]
        left = {viewer: now - until for viewer, until in thread.viewers.items()}
        viewers = [s.ViewerRecord(viewer=name, left=None if ago < 0 else ago) for name, ago in left.items()]
        effects = [one for one in record.effects if want.root_run_id in (None, one.root_run_id)]
        return replace(
            record,
            runs=runs if want.runs or want.run_id is not None else (),
            interrupts=record.interrupts if want.interrupts else (),
            session=record.session if want.session else None,
            effects=effects if want.effects or want.root_run_id is not None else (),
            viewers=viewers if want.viewers else (),
            files=[replace(file.record, thread_ids=()) for file in state.files_of(scope, thread_id) if want.files],
        )

    async def read(
        self, scope: str, thread_id: str, after: int = 0, *, until: int | None = None, limit: int = 1024
    ) -> s.LogPart:
        return read_log((await self._load()).load(scope, thread_id), after, until=until, limit=limit)

    async def values(self, scope: str, thread_id: str, digests: Sequence[bytes]) -> dict[bytes, bytes]:
        thread = (await self._load()).threads.get((scope, thread_id))
        found = {} if thread is None else thread.values
        return {one: contents.read_content(found[one], found.__getitem__) for one in digests if one in found}

    async def threads(self, scope: str, filter: s.ThreadFilter = s.ThreadFilter()) -> s.ThreadPage:
        state, found = await self._load(), []
        for thread in state.threads_of(scope):
            summary = thread.record.summary
            if (
                (filter.before is None or summary.position < filter.before)
                and filter.agent in (None, summary.agent)
                and filter.archived in (None, summary.archived)
                and (filter.metadata is None or filter.metadata.matches(summary.metadata))
                and (filter.run_id is None or any(run.run_id == filter.run_id for run in thread.record.runs))
                and (filter.interrupt_id is None or filter.interrupt_id in thread.raised)
            ):
                found.append(thread)
        if filter.interrupt_id is not None:
            found.sort(key=lambda thread: -thread.raised[filter.interrupt_id or ""])
        page = s.ThreadPage(threads=[thread.record.summary for thread in found[: filter.limit]])
        return replace(page, usage=state.usage(scope), total=state.usage(*state.scopes())) if filter.usage else page

    async def file(
        self, scope: str, file_id: str, start: int = 0, size: int | None = None
    ) -> tuple[s.FileRecord, bytes]:
        found = (await self._load()).files.get((scope, file_id))
        if found is None:
            raise refusals.no_blob(file_id)
        return replace(found.record, thread_ids=()), found.data[start : None if size is None else start + size]

    async def rest(self, scope: str | None = None) -> AsyncIterator[s.Rest]:
        state = await self._load()
        for name in [name for name in state.scopes() if scope in (None, name)]:
            records = [thread.record for thread in state.threads_of(name)]
            runs = sum(one.summary.runs for one in records)
            events = sum(one.summary.last - one.first + 1 for one in records)
            yield s.ScopeRecord(scope=name, usage=state.usage(name), runs=runs, events=events)
        for _, file in sorted(state.files.items()):
            if scope in (None, file.record.scope):
                yield file.record
        if scope is None:
            yield s.RemovedThreads(state.removed)


class OwnStore(Reader, Store):
    """Durable threads in a ``Database``."""

    def __init__(
        self,
        database: Database | None = None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        Store.__init__(self)
        self._database, self._clock, self._monotonic = database or Database(), clock, monotonic

    async def _start(self, live: object) -> None:
        self._order = asyncio.Lock()  # connect here

    async def _stop(self) -> None:
        async with self._order:  # finish what was accepted, then disconnect
            pass

    async def _load(self) -> State:
        _ = self.live  # raises if the store is not open
        return (await self._database.load())[1]

    async def _change(self, job: Callable[[State], T]) -> T:
        """Apply a job to the newest state. The calls of this process keep their order."""
        _ = self.live
        async with self._order:
            while True:
                version, state = await self._database.load()
                draft = state.copy()
                result = job(draft)
                if await self._database.swap(version, draft):
                    return result

    async def check(self) -> None:
        await self._change(lambda state: None)

    # Runs

    async def begin(self, new: s.NewRun) -> s.Begun:
        new = replace(new, events=tuple(new.events))
        rules.check_new(new)
        size, request = encoding.size_of_events(new.events), contents.cut_request(new.request)

        def job(state: State) -> tuple[s.Begun, bool]:
            thread = state.threads.get(new.key)
            if thread is not None and thread.running is not None and thread.lease_token == new.token:
                assert thread.begun is not None
                return s.Begun(new.lease, thread.begun), True  # a repeated call
            plan = rules.begin(head_of(state, new, thread), new, self._clock())  # raises every refusal
            state.put(apply_begin(thread, plan, request, self._monotonic()), touches=True)
            return s.Begun(plan.lease, plan.batch), False

        begun, is_repeated = await self._change(job)
        if is_repeated:
            self.live.own(begun.lease)
        else:
            self.live.publish(begun.lease, begun.batch, size, begun=True)
        return begun

    async def write(self, lease: s.Lease, change: s.RunChange) -> s.Written:
        change = replace(change, events=tuple(change.events))
        size = encoding.size_of_events(change.events)

        def job(state: State) -> tuple[s.Written, bool]:
            thread = state.threads.get((lease.scope, lease.thread_id))
            head = None if thread is None else run_head(thread)
            if thread is not None and (head is None or change.after not in (None, head.last)):
                repeated = find_repeated(thread, lease, change)
                if repeated is not None:
                    return repeated, True
            plan = rules.write(head, lease, change, self._clock(), self._monotonic())
            assert thread is not None
            assert head is not None
            state.put(apply_write(thread, change, plan, state.position + 1), touches=plan.close is not None)
            return s.Written(plan.batch, head.cancel), False

        written, is_repeated = await self._change(job)
        if not is_repeated:
            self.live.publish(lease, written.batch, size, ended=change.end is not None)
        return written

    async def take_over(
        self, owner: str, seconds: float, *, only: s.RunKey | None = None, limit: int = 100
    ) -> Sequence[s.Taken]:
        def job(state: State) -> list[s.Taken]:
            taken: list[s.Taken] = []
            now, is_only = self._monotonic(), only is not None
            for thread in list(state.threads.values()):
                run = thread.running
                if run is None or only not in (None, run.key) or len(taken) == limit:
                    continue
                plan = rules.take_over(run, owner=owner, seconds=seconds, lease_now=now, is_dead=False, is_only=is_only)
                if plan is not None:
                    new = replace(run, owner=owner, epoch=plan.lease.epoch, lease_until=plan.lease_until)
                    thread = with_run(thread, new)
                    state.put(replace(thread, lease_token=plan.lease.token, lease_seconds=plan.lease_seconds))
                    taken.append(s.Taken(lease=plan.lease, run=replace(run, **NO_CONTENTS), launch=thread.launch))
            return taken

        taken = await self._change(job)
        for one in taken:
            self.live.own(one.lease)
        return taken

    async def tell(self, run: s.RunKey, message: s.Message) -> s.RunRecord:
        def job(state: State) -> s.RunRecord:
            thread = state.load(run.scope, run.thread_id)
            found = thread.record.run(run.run_id)
            if found.is_running:
                found = replace(found, cancel=rules.answer_cancel(found, message))
                thread = with_run(thread, found)
                if isinstance(message, s.Watch):
                    now = self._monotonic()
                    until = now + message.seconds
                    if not message.seconds:  # it has left, unless it had before
                        until = min(thread.viewers.get(message.viewer, -inf), now)
                    thread = replace(thread, viewers={**thread.viewers, message.viewer: until})
                state.put(thread)
            return replace(found, **NO_CONTENTS)

        found = await self._change(job)
        self.live.wake_control((run.scope, run.thread_id))
        return found

    async def open_runs(self, scope: str | None = None) -> Sequence[s.RunRecord]:
        running = [thread.running for thread in (await self._load()).threads.values()]
        found = [replace(run, **NO_CONTENTS) for run in running if run is not None and scope in (None, run.scope)]
        return sorted(found, key=lambda run: run.started_at)

    async def stamps(self, keys: Sequence[s.ThreadKey]) -> dict[s.ThreadKey, s.Stamp]:
        threads = (await self._load()).threads
        return {key: stamp_of(threads[key]) for key in keys if key in threads}

    # Threads and files

    async def amend(self, scope: str, thread_id: str, change: s.Amendment) -> s.ThreadSummary:
        def job(state: State) -> s.ThreadSummary:
            thread = state.load(scope, thread_id)
            record = thread.record
            if isinstance(change, s.ThreadUpdate):
                thread = replace(thread, record=replace(record, summary=update_summary(record.summary, change)))
            elif isinstance(change, s.NewTurns):
                for run in record.runs:
                    turn = change.turns.get(run.run_id)
                    if turn is not None and not run.is_running:
                        values = {**contents.cut_values(turn.values), **thread.values}
                        thread = replace(with_run(thread, replace(run, turn=replace(turn, values={}))), values=values)
            return state.put(thread)  # this store does not compact

        return await self._change(job)

    async def delete(self, scope: str, target: s.Target) -> None:
        def job(state: State) -> list[str]:
            if isinstance(target, s.FileTarget):
                if state.files.pop((scope, target.file_id), None) is None:
                    raise refusals.no_blob(target.file_id)
                return []
            if isinstance(target, s.ThreadTarget):
                if not state.files_of(scope, target.thread_id):
                    state.load(scope, target.thread_id)
                state.drop(scope, target.thread_id)
                return [target.thread_id]
            found = [thread.record.summary.thread_id for thread in state.threads_of(scope)]
            for thread_id in found:
                state.drop(scope, thread_id)
            for file in state.files_of(scope):
                del state.files[scope, file.record.file_id]
            return found

        for thread_id in await self._change(job):
            self.live.invalidate((scope, thread_id))

    async def put_file(
        self,
        scope: str,
        data: bytes,
        *,
        media_type: str,
        filename: str | None = None,
        thread_id: str | None = None,
        quotas: s.Quotas | None = None,
    ) -> s.FileRecord:
        encoding.check_ids(scope, thread_id or "")
        record = s.FileRecord(
            scope=scope,
            file_id=encoding.hash_blob(scope, data, media_type, filename),
            media_type=media_type,
            filename=filename,
            size=len(data),
            created_at=self._clock(),
            is_kept=thread_id is None,
            thread_ids=() if thread_id is None else (thread_id,),
        )

        def job(state: State) -> s.FileRecord:
            if quotas is not None and (scope, record.file_id) not in state.files:
                new = s.Usage(files=1, bytes=len(data))
                exceeded = quotas.find_exceeded(state.usage(scope), state.usage(*state.scopes()), new=new)
                if exceeded is not None:
                    raise refusals.quota_exceeded(exceeded)
            return state.put_file(File(record, data))

        return await self._change(job)

    async def sweep(self, retention: s.Retention, *, limit: int = 100) -> s.Swept:
        def job(state: State) -> list[s.ThreadKey]:
            return [key for scope in state.scopes() for key in sweep_scope(state, scope, retention, self._clock())]

        removed = await self._change(job)
        for key in removed:
            self.live.invalidate(key)
        return s.Swept(removed=len(removed))

    # Archives

    @asynccontextmanager
    async def snapshot(self) -> AsyncIterator[StoreReader]:
        yield Reader(await self._load(), self._monotonic)  # a state is never changed; yours has a transaction

    async def restore(self, archive: s.Archive, *, replace: bool = False) -> None:
        await self._change(lambda state: restore(state, archive, is_replaced=replace))
        if isinstance(archive, s.ThreadArchive):
            self.live.invalidate((archive.thread.scope, archive.thread.summary.thread_id))


# What ``rules`` asks for, and what its plans change


def head_of(state: State, new: s.NewRun, thread: Thread | None) -> rules.Head:
    """Return what ``rules.begin`` decides about."""
    usage = state.usage(new.scope) if new.quotas else s.Usage()
    total = state.usage(*state.scopes()) if new.quotas and new.quotas.is_total else s.Usage()
    running = sum(one.running is not None for one in state.threads_of(new.scope))
    if thread is None:
        first = rules.next_first(state.removed.get(encoding.hash_thread(*new.key)))
        return rules.Head(first=first, running_in_scope=running, usage=usage, total=total)
    record = thread.record
    runs = [replace(run, **NO_CONTENTS) for run in record.runs]
    return rules.Head(
        agent=record.summary.agent,
        first=record.first,
        last=record.summary.last,
        runs=len(runs),
        running=runs[-1] if runs[-1].is_running else None,
        same=next((run for run in runs if run.run_id == new.run_id), None),
        open_interrupts={one.interrupt_id for one in record.interrupts if one.status == "open"},
        running_in_scope=running,
        usage=usage,
        total=total,
    )


def apply_begin(thread: Thread | None, plan: rules.BeginPlan, request: contents.CutRequest, lease_now: float) -> Thread:
    """Return a thread with a new run; a new thread if there was none."""
    new, now = plan.new, plan.now
    if thread is None:
        summary = s.ThreadSummary(
            thread_id=new.thread_id,
            created_at=now,
            updated_at=now,
            last=0,
            runs=0,
            running=None,
            position=0,
            agent=new.agent,
        )
        thread = Thread(record=s.ThreadRecord(scope=new.scope, summary=summary, first=plan.first))
    record = thread.record
    run = plan.record(lease_now + new.lease_seconds)
    interrupts = [
        replace(one, status="claimed", claimed_by=new.run_id) if one.interrupt_id in new.claims else one
        for one in record.interrupts
    ]
    return replace(
        thread,
        record=replace(
            record,
            summary=replace(record.summary, updated_at=now),
            runs=[*record.runs, replace(run, request=request.head, messages=request.messages)],
            interrupts=interrupts,
        ),
        batches=(*thread.batches, plan.batch),
        values={**{digest: bytes(body) for digest, body in request.contents.items()}, **thread.values},
        lease_token=new.token,
        lease_seconds=new.lease_seconds,
        launch=new.launch,
        begun=plan.batch,
    )


def run_head(thread: Thread) -> rules.RunHead | None:
    """Return the open run as ``rules.write`` needs it."""
    run = thread.running
    if run is None:
        return None
    return rules.RunHead(
        run_id=run.run_id,
        epoch=run.epoch,
        token=thread.lease_token,
        last=run.last,
        lease_until=run.lease_until,
        lease_seconds=thread.lease_seconds,
        cancel=run.cancel,
        claims={one.interrupt_id: one.status for one in thread.record.interrupts if one.claimed_by == run.run_id},
    )


def find_repeated(thread: Thread, lease: s.Lease, change: s.RunChange) -> s.Written | None:
    """Return the outcome of a write that was stored before."""
    run = next((run for run in thread.record.runs if run.run_id == lease.run_id), None)
    if run is None or change.after is None or (not change.events and run.last != change.after):
        return None
    count = len(change.events)
    try:
        stored = read_log(thread, change.after, until=change.after + count, limit=count).batches
    except CursorExpired:
        return None
    if not rules.is_repeated(change, lease, stored, run.outcome):
        return None
    at = stored[0].at if stored else 0
    return s.Written(s.Batch(change.after + 1, change.events, at, lease.token), run.cancel)


def apply_write(thread: Thread, change: s.RunChange, plan: rules.WritePlan, position: int) -> Thread:
    """Return a thread after a write. ``position`` is that of the thread if its run ends."""
    record, settles, close, end = thread.record, change.settles, plan.close, change.end
    run = replace(record.runs[-1], last=plan.batch.last)
    if plan.batch.events:
        run = replace(run, token=plan.batch.token)
        thread = replace(thread, batches=(*thread.batches, plan.batch))
    if plan.lease_until is not None:
        run = replace(run, lease_until=plan.lease_until)
        thread = replace(thread, lease_seconds=plan.lease_seconds)
    effects = {(one.root_run_id, one.name): one for one in record.effects}
    for effect in plan.effects:
        name = (effect.root_run_id, effect.name)
        effects[name] = rules.merge_effect(effects.get(name), effect)
    interrupts = [replace(one, status="settled") if one.interrupt_id in settles else one for one in record.interrupts]
    summary = replace(record.summary, updated_at=plan.updated_at or record.summary.updated_at)
    if close is not None and end is not None:
        raised = {one.interrupt_id: position for one in close.raises}
        interrupts = [
            replace(one, status="open", claimed_by=None) if one.interrupt_id in close.reopens else one
            for one in interrupts
            if one.interrupt_id not in raised
        ]
        interrupts += close.raises
        summary = update_summary(summary, end.update or s.ThreadUpdate())
        turn, values = end.turn, thread.values
        if turn is not None:
            values, turn = {**contents.cut_values(turn.values), **values}, replace(turn, values={})
        run = replace(run, outcome=end.outcome, ended_at=close.ended_at, turn=turn)
        thread = replace(thread, values=values, raised={**thread.raised, **raised}, launch=None, viewers={})
    session = record.session if change.session is None else change.session
    record = replace(record, summary=summary, interrupts=interrupts, effects=[*effects.values()], session=session)
    return with_run(replace(thread, record=record), run)


def with_run(thread: Thread, run: s.RunRecord) -> Thread:
    """Replace a run of a thread."""
    runs = [run if one.number == run.number else one for one in thread.record.runs]
    return replace(thread, record=replace(thread.record, runs=runs))


def update_summary(summary: s.ThreadSummary, update: s.ThreadUpdate) -> s.ThreadSummary:
    title, metadata = rules.change_details(summary.title, summary.metadata, update)
    archived = summary.archived if update.archived is msgspec.UNSET else update.archived
    return replace(summary, title=title, metadata=metadata, archived=archived)


def read_log(thread: Thread, after: int, *, until: int | None, limit: int) -> s.LogPart:
    first, last = thread.record.first, thread.record.summary.last
    start, stop = encoding.check_cursor(after, first, last), last if until is None else until
    token = next((batch.token for batch in thread.batches if batch.first <= start <= batch.last), None)
    if token is None and start >= first:  # a restored thread may be compacted
        raise encoding.inside_compacted(after)
    found: list[s.Batch] = []
    for batch in thread.batches:
        events = batch.events[max(0, start + 1 - batch.first) : max(0, stop + 1 - batch.first)]
        if events and sum(len(one.events) for one in found) < limit:
            found.append(replace(batch, first=max(batch.first, start + 1), events=events))
    return s.LogPart(batches=found, first=first, last=last, token=token or "")


def stamp_of(thread: Thread) -> s.Stamp:
    run, first, last = thread.running, thread.record.first, thread.record.summary.last
    if run is None:
        return s.Stamp(first, last)
    return s.Stamp(first, last, run.run_id, run.epoch, thread.lease_token, run.cancel)


def sweep_scope(state: State, scope: str, retention: s.Retention, now: float) -> list[s.ThreadKey]:
    """Remove threads without an open run and files without a thread, the oldest first."""
    threads = state.threads_of(scope)[::-1]
    ids = {thread.record.summary.thread_id for thread in threads}
    found: list[tuple[float, Any]] = [(one.record.summary.updated_at, one) for one in threads if not one.running]
    found += [(one.record.created_at, one) for one in state.files_of(scope) if not ids & {*one.record.thread_ids}]
    removed: list[s.ThreadKey] = []
    for at, one in sorted(found, key=lambda entry: entry[0]):
        usage, is_thread = state.usage(scope), isinstance(one, Thread)
        if not retention.is_exceeded(age=now - at, size=usage.bytes, threads=usage.threads if is_thread else 0):
            continue
        if is_thread:
            removed.append((scope, one.record.summary.thread_id))
            state.drop(*removed[-1])
        else:
            del state.files[scope, one.record.file_id]
    return removed


def restore(state: State, archive: s.Archive, *, is_replaced: bool) -> None:
    if isinstance(archive, s.RemovedThreads):
        for name, last in archive.last.items():
            state.removed[name] = max(last, state.removed.get(name, 0))
    elif isinstance(archive, s.FileArchive):
        state.put_file(File(archive.file.record, archive.file.data))
    else:
        check_archive(archive)
        record = archive.thread
        key = record.scope, record.summary.thread_id
        if key in state.threads:
            if not is_replaced:
                raise refusals.thread_exists(key[1])
            state.drop(*key)
        raised = {one.interrupt_id: state.position + 1 for one in record.interrupts}
        thread = replace(record, files=(), viewers=())
        batches = tuple(archive.batches)
        state.put(Thread(record=thread, batches=batches, values=dict(archive.values), raised=raised), touches=True)
        for file in archive.files:
            state.put_file(File(replace(file.record, thread_ids=(key[1],)), file.data))


async def agent(run: Run):
    yield f"You said: {run.user_text}"


async def main() -> None:
    database = Database()
    one, other = (App(agent, store=OwnStore(database)) for _ in range(2))  # as two processes
    async with client_for(one) as client:
        result = await client.thread("demo").run("Is this durable?")
        print(result.text)
    async with client_for(other) as client:
        thread = client.thread("demo")
        await thread.refresh()
        print([message.content for message in thread.messages])


if __name__ == "__main__":
    asyncio.run(main())
