"""The handlers of files: upload, download, delete."""

from __future__ import annotations

from collections.abc import AsyncIterator

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.errors import QuotaExceeded
from aguila.server.http.downloads import file_response
from aguila.server.http.request import Request
from aguila.server.http.responses import BufferedResponse, Response, json_response, stream_response
from aguila.server.http.service import Service
from aguila.server.http.uploads import receive_upload
from aguila.server.runs.admission import refuse_storage
from aguila.store import FileTarget

_PART = 1 << 17
"""Bytes of a file that are read at a time while it is sent."""


async def upload_file(service: Service, request: Request) -> Response:
    """``POST /files``: store an upload."""
    admission, caller = service.runs.admission, request.caller
    address = caller.address

    def count(size: int, *, new_files: int = 0) -> None:
        if address is not None:
            refusal = admission.hourly.refusal(address, own_files=1 - new_files)
            if refusal is not None:
                raise refusal
            admission.hourly.count(address, size=size, files=new_files)

    count(0, new_files=1)
    try:
        file = await receive_upload(
            request,
            store=service.store,
            scope=caller.scope,
            limits=caller.limits,
            quotas=caller.quotas,
            count=count,
        )
    except QuotaExceeded as error:
        raise refuse_storage(error, caller.quotas, caller.principal, caller.limits) from None
    answer = {
        "id": file.file_id,
        "mediaType": file.media_type,
        "filename": file.filename,
        "size": file.size,
        "source": {"type": "file", "value": file.file_id, "provider": FILE_PROVIDER, "mimeType": file.media_type},
    }
    return json_response(answer, status=201)


async def download_file(service: Service, request: Request) -> Response:
    """``GET /files/{id}``: send the bytes of a file."""
    (file_id,) = request.ids
    store, tenant = service.store, request.caller.scope
    file, _ = await store.file(tenant, file_id, 0, 0)
    status, headers, wanted = file_response(file, request)
    is_head = request.method == "HEAD"

    async def read() -> AsyncIterator[bytes]:
        for at in range(wanted.start, wanted.start if is_head else wanted.stop, _PART):
            yield (await store.file(tenant, file_id, at, min(_PART, wanted.stop - at)))[1]

    return service.unsent.hold(stream_response(read(), headers, status), min(len(wanted), 2 * _PART))


async def delete_file(service: Service, request: Request) -> Response:
    """``DELETE /files/{id}``: delete a file, even if threads refer to it."""
    (file_id,) = request.ids
    await service.store.delete(request.caller.scope, FileTarget(file_id))
    return BufferedResponse(status=204)
