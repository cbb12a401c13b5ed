"""The handlers of files: upload, download, delete."""

from __future__ import annotations

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.errors import NotFound, QuotaExceeded, StoreUnavailable
from aguila.server.errors import Disconnected
from aguila.server.files import file_response, receive_upload
from aguila.server.http.body_limits import Reservation
from aguila.server.http.responses import BufferedResponse, Receive, Response, Send, json_response
from aguila.server.service import Exchange, Service

_PART = 1 << 17
"""Bytes of a file that are read at a time while it is sent."""


async def upload_file(service: Service, exchange: Exchange) -> Response:
    """``POST /files``: store an upload."""
    quotas, address = service.runs.quotas, exchange.counted_address

    def count(size: int) -> None:
        if address is not None:
            refusal = service.peer_quotas.refusal(address)
            if refusal is not None:
                raise refusal
            service.peer_quotas.count(address, size=size)

    count(0)
    with Reservation(service.body_budget, exchange) as reservation:
        try:
            blob = await receive_upload(
                exchange.request,
                exchange.receive,
                store=service.store,
                scope=exchange.scope,
                limits=service.limits,
                reservation=reservation,
                quotas=quotas.find(exchange.principal),
                count=count,
            )
        except QuotaExceeded as error:
            raise quotas.refusal(error, exchange.principal) from None
    answer = {
        "id": blob.blob_id,
        "mediaType": blob.media_type,
        "filename": blob.filename,
        "size": blob.size,
        "source": {"type": "file", "value": blob.blob_id, "provider": FILE_PROVIDER, "mimeType": blob.media_type},
    }
    return json_response(answer, exchange.headers, 201)


async def download_file(service: Service, exchange: Exchange) -> Response:
    """``GET /files/{id}``: send the bytes of a file."""
    (file_id,) = exchange.params
    store, scope = service.store, exchange.scope
    blob, _ = await store.blob_part(scope, file_id, 0, 0)
    status, headers, wanted = file_response(blob, exchange.request)
    head = [*headers, *exchange.headers]
    is_head = exchange.request.method == "HEAD"

    async def reply(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": head})
        for at in range(wanted.start, wanted.start if is_head else wanted.stop, _PART):
            try:
                _, piece = await store.blob_part(scope, file_id, at, min(_PART, wanted.stop - at))
            except (NotFound, StoreUnavailable):
                raise Disconnected from None  # the file was deleted; the client sees that bytes are missing
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return service.unsent.hold(reply, min(len(wanted), 2 * _PART))


async def delete_file(service: Service, exchange: Exchange) -> Response:
    """``DELETE /files/{id}``: delete a file, even if threads refer to it."""
    (file_id,) = exchange.params
    await service.store.delete_blob(exchange.scope, file_id)
    return BufferedResponse(status=204, headers=exchange.headers)
