"""The handlers for callers with the right ``admin``: the runs in progress and the usage of all scopes."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from aguila.codec.logs import log_event
from aguila.offload import offload
from aguila.server.http.parameters import read_count
from aguila.server.http.request import Request
from aguila.server.http.responses import Response, json_response
from aguila.server.http.run_routes import cancel_or_withdraw, describe_run
from aguila.server.http.service import Service
from aguila.store import RunRecord, ScopeRecord

_log = logging.getLogger("aguila.server")


async def list_open_runs(service: Service, request: Request) -> Response:
    """``GET /admin/runs``: the runs in progress of all scopes, the oldest first."""
    seconds = read_count(request, "olderThan") or 0
    runs = await service.store.open_runs(request.query.get("scope"))
    return await offload(_describe_runs, runs, time.time() - seconds)


def _describe_runs(runs: Sequence[RunRecord], until: float) -> Response:
    found = [{"scope": run.scope, **describe_run(run)} for run in runs if run.started_at <= until]
    return json_response({"runs": found})


async def list_usage(service: Service, request: Request) -> Response:
    """``GET /admin/scopes``: what each scope stores, the one with the most bytes first."""
    found: list[ScopeRecord] = []
    async for one in service.store.rest(request.query.get("scope")):
        if not isinstance(one, ScopeRecord):
            break  # scopes come first
        found.append(one)
    return await offload(_describe_scopes, found)


def _describe_scopes(found: list[ScopeRecord]) -> Response:
    found.sort(key=lambda one: -one.usage.bytes)
    return json_response({"scopes": [_describe_scope(one) for one in found]})


def _describe_scope(one: ScopeRecord) -> dict[str, Any]:
    usage = one.usage
    return {
        "scope": one.scope,
        "threads": usage.threads,
        "runs": one.runs,
        "events": one.events,
        "bytes": usage.bytes,
        "files": usage.files,
    }


async def cancel_run_of_scope(service: Service, request: Request) -> Response:
    """``POST /admin/scopes/{scope}/threads/{thread}/runs/{run}/cancel``: as the caller of that scope can."""
    scope, thread_id, run_id = request.ids
    response = await cancel_or_withdraw(service, scope, thread_id, run_id)
    message = "a run was cancelled by an administrator"
    log_event(_log, logging.INFO, message, thread=thread_id, run=run_id, scope=scope, by=request.caller.scope)
    return response
