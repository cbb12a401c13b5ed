"""The handlers of files: upload, download, delete."""

from __future__ import annotations

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.errors import QuotaExceeded
from aguila.server.files import file_response, receive_upload
from aguila.server.http.body_limits import Reservation
from aguila.server.http.responses import MAX_WRITE, BufferedResponse, Receive, Response, Send, json_response
from aguila.server.service import Exchange, Service


async def upload_file(service: Service, exchange: Exchange) -> Response:
    """``POST /files``: store an upload."""
    quotas, address = service.runs.quotas, exchange.counted_address
    refusal = None if address is None else service.peer_quotas.refusal(address)
    if refusal is not None:
        raise refusal
    with Reservation(service.body_budget, exchange.peer) as reservation:
        try:
            blob = await receive_upload(
                exchange.request,
                exchange.receive,
                store=service.store,
                scope=exchange.scope,
                limits=service.limits,
                reservation=reservation,
                quotas=quotas.find(exchange.principal),
            )
        except QuotaExceeded as error:
            raise quotas.refusal(error, exchange.principal) from None
    if address is not None:
        service.peer_quotas.count(address, size=blob.size)
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
    blob, data = await service.store.blob(exchange.scope, file_id)
    status, headers, body = file_response(blob, data, exchange.request)

    async def reply(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [*headers, *exchange.headers]})
        for at in range(0, len(body), MAX_WRITE):
            await send({"type": "http.response.body", "body": body[at : at + MAX_WRITE], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return service.unsent.hold(reply, len(body))


async def delete_file(service: Service, exchange: Exchange) -> Response:
    """``DELETE /files/{id}``: delete a file, even if threads refer to it."""
    (file_id,) = exchange.params
    await service.store.delete_blob(exchange.scope, file_id)
    return BufferedResponse(status=204, headers=exchange.headers)
