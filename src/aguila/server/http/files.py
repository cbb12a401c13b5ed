"""Layer: server. The handlers about files: upload, download and deletion.

Below: ``files``. Above: the table in ``routes``.
"""

from __future__ import annotations

from aguila.agent.chat_values import FILE_PROVIDER
from aguila.server.files import file_response, receive_upload
from aguila.server.http.body_limits import Share
from aguila.server.http.responses import SLICE, Document, Receive, Reply, Send, json_document
from aguila.server.service import Exchange, Service


async def upload(service: Service, exchange: Exchange) -> Reply:
    """``POST /files``."""
    with Share(service.admission) as share:
        blob = await receive_upload(
            exchange.request,
            exchange.receive,
            store=service.store,
            scope=exchange.scope,
            limits=service.limits,
            share=share,
        )
    answer = {
        "id": blob.blob_id,
        "mediaType": blob.media_type,
        "filename": blob.filename,
        "size": blob.size,
        "source": {"type": "file", "value": blob.blob_id, "provider": FILE_PROVIDER, "mimeType": blob.media_type},
    }
    return json_document(answer, exchange.headers, 201)


async def download(service: Service, exchange: Exchange) -> Reply:
    """``GET /files/{id}``."""
    (file_id,) = exchange.params
    blob, data = await service.store.blob(exchange.scope, file_id)
    status, headers, body = file_response(blob, data, exchange.request)

    async def reply(receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": status, "headers": [*headers, *exchange.headers]})
        for at in range(0, len(body), SLICE):
            await send({"type": "http.response.body", "body": body[at : at + SLICE], "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    return reply


async def delete(service: Service, exchange: Exchange) -> Reply:
    """``DELETE /files/{id}``: whichever threads have it."""
    (file_id,) = exchange.params
    await service.store.delete_blob(exchange.scope, file_id)
    return Document(status=204, headers=exchange.headers)
