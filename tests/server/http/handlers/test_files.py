"""Files: uploads, safe downloads, resolved references; the server never fetches a URL."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from stores.stored_threads import SCOPE, agent_input, write_run

from aguila.server.config.errors import Rejected
from aguila.server.config.limits import Limits
from aguila.server.http.budget import BodyBudget, Reservation
from aguila.server.http.downloads import file_response
from aguila.server.http.request import Request
from aguila.server.http.uploads import receive_upload
from aguila.server.threads.files import resolve_file
from aguila.store import FileRecord, Store, ThreadTarget

pytestmark = pytest.mark.anyio

PNG = b"\x89PNG\r\n\x1a\n" + bytes(range(256))


async def upload(
    store: Store,
    body: bytes,
    headers: dict[str, str],
    *,
    query: str = "",
    limits: Limits = Limits(),  # noqa: B008 - immutable
    pieces: list[bytes] | None = None,
    breaks_off: bool = False,
    count: Callable[[int], None] = lambda _: None,
) -> FileRecord:
    asgi = {
        "method": "POST",
        "headers": [(name.encode(), value.encode("latin-1")) for name, value in headers.items()],
        "query_string": query.encode(),
    }
    chunks = [body] if pieces is None else pieces
    messages: list[dict[str, Any]] = [{"type": "http.request", "body": one, "more_body": True} for one in chunks]
    if breaks_off:
        messages.append({"type": "http.disconnect"})
    else:
        messages[-1]["more_body"] = False
    waiting = iter(messages)

    async def receive() -> Any:
        return next(waiting)

    request = Request({"type": "http", **asgi})
    request.receive, request.reservation = receive, Reservation(BodyBudget(limits.buffered))
    return await receive_upload(request, store=store, scope=SCOPE, limits=limits, count=count)


async def refusal(store: Store, *args: Any, **options: Any) -> tuple[int, str]:
    with pytest.raises(Rejected) as caught:
        await upload(store, *args, **options)
    return caught.value.status, caught.value.code


def form(*parts: tuple[str, bytes], boundary: str = "XX") -> tuple[bytes, dict[str, str]]:
    body = b"".join(f"--{boundary}\r\n{head}\r\n\r\n".encode() + data + b"\r\n" for head, data in parts)
    return body + f"--{boundary}--\r\n".encode(), {"content-type": f"multipart/form-data; boundary={boundary}"}


def file_part(name: str = "cat.png", media_type: str | None = "image/png", data: bytes = PNG) -> tuple[str, bytes]:
    head = f'Content-Disposition: form-data; name="file"; filename="{name}"'
    return (head if media_type is None else f"{head}\r\nContent-Type: {media_type}", data)


# In


async def test_a_body_is_a_file_of_its_content_type(open_store: Store) -> None:
    blob = await upload(open_store, PNG, {"content-type": "Image/PNG; q=1"}, query="filename=cat%C3%A4.png")
    assert (blob.media_type, blob.filename, blob.size) == ("image/png", "catä.png", len(PNG))
    assert await open_store.file(SCOPE, blob.file_id) == (blob, PNG)


async def test_a_body_may_be_named_by_a_content_disposition_and_has_a_type_anyway(open_store: Store) -> None:
    blob = await upload(open_store, b"x", {"content-disposition": 'attachment; filename="a.bin"'})
    assert (blob.media_type, blob.filename) == ("application/octet-stream", "a.bin")


async def test_a_form_brings_one_file(open_store: Store) -> None:
    body, headers = form(('Content-Disposition: form-data; name="note"', b"hi"), file_part())
    blob = await upload(open_store, body, headers)
    assert (blob.media_type, blob.filename) == ("image/png", "cat.png")
    assert (await open_store.file(SCOPE, blob.file_id))[1] == PNG


async def test_a_form_may_arrive_in_any_pieces(open_store: Store) -> None:
    body, headers = form(('Content-Disposition: form-data; name="threadId"', b"t1"), file_part())
    whole = await upload(open_store, body, headers)
    rng = random.Random(1)
    for cut in [*range(1, 200), *(rng.randrange(200, len(body)) for _ in range(30))]:
        assert await upload(open_store, b"", headers, pieces=[body[:cut], b"", body[cut:]]) == whole
    one_by_one = [body[at : at + 1] for at in range(len(body))]
    assert await upload(open_store, b"", headers, pieces=one_by_one) == whole


async def test_an_empty_file_is_a_file(open_store: Store) -> None:
    assert (await upload(open_store, b"", {"content-type": "text/plain"})).size == 0
    body, headers = form(file_part(data=b""))
    assert (await upload(open_store, body, headers)).size == 0


async def test_the_same_file_twice_is_one_file(open_store: Store) -> None:
    headers = {"content-type": "image/png"}
    assert await upload(open_store, PNG, headers) == await upload(open_store, PNG, headers)
    assert (await upload(open_store, PNG + b"x", headers)).file_id != (await upload(open_store, PNG, headers)).file_id


@pytest.mark.parametrize("place", ["query", "form"])
async def test_a_file_given_to_a_thread_goes_with_it(open_store: Store, place: str) -> None:
    await write_run(open_store, agent_input("r1", thread_id="t 1"))
    if place == "query":
        blob = await upload(open_store, PNG, {"content-type": "image/png"}, query="threadId=t%201")
    else:
        body, headers = form(file_part(), ('Content-Disposition: form-data; name="threadId"', b"t 1"))
        blob = await upload(open_store, body, headers)
    await open_store.delete(SCOPE, ThreadTarget("t 1"))
    assert await resolve_file(open_store, SCOPE, blob.file_id) is None


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("../../etc/passwd", "passwd"),
        ("C:\\\\secret\\\\plan.txt", "plan.txt"),
        ("a\tb\x7f.txt", "ab.txt"),
        ("evil\u202egpj.exe", "evilgpj.exe"),
        ("..", None),
        (" ", None),
        ("x" * 500 + ".png", "x" * 180 + ".png"),
        ("x" * 500, "x" * 200),
    ],
)
async def test_a_file_name_is_only_a_name(open_store: Store, name: str, kept: str | None) -> None:
    body, headers = form(file_part(name))
    assert (await upload(open_store, body, headers)).filename == kept


async def test_a_file_may_be_as_large_as_allowed_and_no_larger(open_store: Store) -> None:
    limits = Limits(upload=1000)
    plain = {"content-type": "text/plain"}
    assert (await upload(open_store, b"x" * 1000, plain, limits=limits)).size == 1000
    assert await refusal(open_store, b"x" * 1001, plain, limits=limits) == (413, "too_large")
    assert await refusal(open_store, b"", {**plain, "content-length": "1001"}, limits=limits) == (413, "too_large")
    assert await refusal(open_store, b"", {**plain, "content-length": "9" * 99}, limits=limits) == (413, "too_large")
    body, headers = form(file_part(data=b"x" * 1000))
    assert (await upload(open_store, body, headers, limits=limits)).size == 1000
    body, headers = form(file_part(data=b"x" * 1001))
    assert await refusal(open_store, body, headers, limits=limits) == (413, "too_large")


async def test_what_is_around_a_file_is_limited_too(open_store: Store) -> None:
    limits = Limits(upload=1000)
    body, headers = form(("Content-Disposition: form-data; name=x", b"y" * 5000), file_part())
    assert await refusal(open_store, body, headers) == (422, "malformed_upload")
    fields = [("Content-Disposition: form-data; name=x", b"y" * 4000)] * 20
    body, headers = form(*fields, file_part())
    assert await refusal(open_store, body, headers, limits=limits) == (413, "too_large")


@pytest.mark.parametrize(
    ("media_type", "is_taken"),
    [
        ("image/png", True),
        ("application/pdf", True),
        ("image/svg+xml", True),
        ("text/html", False),
        ("imagex/a", False),
    ],
)
async def test_types_can_be_limited(open_store: Store, media_type: str, is_taken: bool) -> None:
    limits = Limits(upload_types=("image/*", "application/pdf"))
    body, headers = form(file_part(media_type=media_type))
    for sent, given in ((PNG, {"content-type": media_type}), (body, headers)):
        if is_taken:
            assert (await upload(open_store, sent, given, limits=limits)).media_type == media_type
        else:
            assert await refusal(open_store, sent, given, limits=limits) == (415, "unsupported_media_type")


@pytest.mark.parametrize("media_type", ["nonsense", "text/", "/plain", "text/pl ain", "a" * 80 + "/b", "text/x\xe4"])
async def test_a_type_that_is_none_is_refused(open_store: Store, media_type: str) -> None:
    assert await refusal(open_store, PNG, {"content-type": media_type}) == (415, "unsupported_media_type")


async def test_forms_that_cannot_be_read_are_refused(open_store: Store) -> None:
    body, headers = form(file_part())
    broken: list[tuple[bytes, dict[str, str]]] = [
        (body, {"content-type": "multipart/form-data"}),
        (body, {"content-type": "multipart/form-data; boundary=YY"}),
        (body[:-10], headers),
        (body[:60], headers),
        (b"", headers),
        form(),
        form(('Content-Disposition: form-data; name="note"', b"no file")),
        form(file_part(), file_part()),
    ]
    for sent, given in broken:
        assert await refusal(open_store, sent, given) == (422, "malformed_upload"), sent


async def test_a_compressed_body_is_refused(open_store: Store) -> None:
    headers = {"content-type": "text/plain", "content-encoding": "gzip"}
    assert await refusal(open_store, b"x", headers) == (415, "unsupported_encoding")


async def test_an_upload_that_is_broken_off_stores_nothing(open_store: Store) -> None:
    headers = {"content-type": "text/plain"}
    assert await refusal(open_store, b"half", headers, breaks_off=True) == (400, "disconnected")
    whole = await upload(open_store, b"hal", headers)
    assert whole.size == 3


# Out


def file_request(method: str = "GET", **headers: str) -> Request:
    named = [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    request = Request({"type": "http", "method": method, "headers": named})
    request.method = method
    return request


def download(data: bytes, request: Request) -> tuple[int, dict[str, str], bytes]:
    blob = FileRecord(scope="s", file_id="abc", media_type="image/png", filename=None, size=len(data), created_at=0.0)
    status, headers, sent = file_response(blob, request)
    return status, {name.decode(): value.decode("latin-1") for name, value in headers}, data[sent.start : sent.stop]


def answer(media_type: str, filename: str | None = None) -> dict[str, str]:
    blob = FileRecord(scope="s", file_id="abc", media_type=media_type, filename=filename, size=1, created_at=0.0)
    status, headers, sent = file_response(blob, file_request())
    assert (status, sent) == (200, range(1))
    return {name.decode(): value.decode("latin-1") for name, value in headers}


@pytest.mark.parametrize("known", ['"abc"', 'W/"abc"', '"x", "abc"', "*"])
def test_a_client_that_has_the_file_gets_304(known: str) -> None:
    status, headers, body = download(b"0123456789", file_request(if_none_match=known, range="bytes=0-1"))
    assert (status, body, headers["etag"]) == (304, b"", '"abc"')
    assert "content-length" not in headers
    assert headers["cache-control"].startswith("private")


@pytest.mark.parametrize("known", ['"x"', "abc", '"abcd"', ""])
def test_a_client_that_has_another_file_gets_this_one(known: str) -> None:
    status, headers, body = download(b"0123456789", file_request(if_none_match=known))
    assert (status, body, headers["accept-ranges"]) == (200, b"0123456789", "bytes")


@pytest.mark.parametrize(
    ("wanted", "body", "said"),
    [
        ("bytes=0-3", b"0123", "bytes 0-3/10"),
        ("bytes=4-", b"456789", "bytes 4-9/10"),
        ("bytes=-3", b"789", "bytes 7-9/10"),
        ("bytes=-30", b"0123456789", "bytes 0-9/10"),
        ("bytes=8-100", b"89", "bytes 8-9/10"),
        ("Bytes = 9 - 9", b"9", "bytes 9-9/10"),
    ],
)
def test_a_part_of_a_file_can_be_asked_for(wanted: str, body: bytes, said: str) -> None:
    status, headers, found = download(b"0123456789", file_request(range=wanted))
    assert (status, found, headers["content-range"]) == (206, body, said)
    assert headers["content-length"] == str(len(body))
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    same = download(b"0123456789", file_request(range=wanted, if_range='"abc"'))
    assert same[0] == 206
    other = download(b"0123456789", file_request(range=wanted, if_range='"of another version"'))
    assert (other[0], other[2]) == (200, b"0123456789")
    assert download(b"0123456789", file_request("HEAD", range=wanted))[0] == 200


@pytest.mark.parametrize(
    "wanted", ["bytes=0-1,4-5", "bytes=5-2", "bytes=-", "bytes=x-y", "lines=0-1", "", "bytes=\xb2-"]
)
def test_a_range_that_is_none_gets_the_whole_file(wanted: str) -> None:
    assert download(b"0123456789", file_request(range=wanted))[::2] == (200, b"0123456789")


@pytest.mark.parametrize("wanted", ["bytes=10-", "bytes=10-12", "bytes=-0"])
def test_a_range_beyond_the_file_is_refused(wanted: str) -> None:
    with pytest.raises(Rejected) as caught:
        download(b"0123456789", file_request(range=wanted))
    assert (caught.value.status, caught.value.code) == (416, "range_not_satisfiable")
    assert caught.value.headers == {"content-range": "bytes */10"}


@pytest.mark.parametrize("media_type", ["image/png", "image/jpeg", "audio/mpeg", "video/mp4", "text/plain"])
def test_what_cannot_be_active_is_shown(media_type: str) -> None:
    headers = answer(media_type)
    assert headers["content-disposition"] == "inline"
    assert headers["content-type"].startswith(media_type)


@pytest.mark.parametrize(
    "media_type",
    ["text/html", "image/svg+xml", "application/xhtml+xml", "text/xml", "text/javascript", "application/pdf", "a/b"],
)
def test_what_could_be_active_is_saved(media_type: str) -> None:
    assert answer(media_type)["content-disposition"] == "attachment"


def test_every_file_is_sandboxed_private_and_of_its_stated_type() -> None:
    headers = answer("text/html")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["content-security-policy"] == "default-src 'none'; sandbox"
    assert headers["cache-control"].startswith("private")
    assert headers["content-length"] == "1"


def test_a_name_of_any_letters_is_sent_safely() -> None:
    named = answer("a/b", 'Größe "1"%\\ 日本.pdf')["content-disposition"]
    assert named.startswith("attachment; filename=\"Gr__e _1___ __.pdf\"; filename*=UTF-8''Gr%C3%B6%C3%9Fe%20%221%22")


# References


async def test_a_reference_to_an_upload_of_the_scope_is_its_bytes(open_store: Store) -> None:
    blob = await upload(open_store, PNG, {"content-type": "image/png"}, query="filename=cat.png")
    assert await resolve_file(open_store, SCOPE, blob.file_id) == (PNG, "image/png", "cat.png")


async def test_other_references_stay_unresolved(open_store: Store) -> None:
    blob = await upload(open_store, PNG, {"content-type": "image/png"})
    assert await resolve_file(open_store, "other", blob.file_id) is None
    for file_id in ("", "nope", "https://example.com/cat.png", "../x", "\ud83d", "\x00"):
        assert await resolve_file(open_store, SCOPE, file_id) is None


async def test_the_id_of_a_thread_is_checked_as_it_is_elsewhere(open_store: Store) -> None:
    headers = {"content-type": "image/png"}
    assert await refusal(open_store, PNG, headers, query="threadId=") == (422, "malformed_upload")
    assert await refusal(open_store, PNG, headers, query="threadId=" + "x" * 513) == (422, "id_too_long")
    assert (await upload(open_store, PNG, headers, query="threadId=" + "x" * 512)).size == len(PNG)
    body, of_form = form(file_part(), ('Content-Disposition: form-data; name="threadId"', b"t1"))
    assert await refusal(open_store, body, of_form, query="threadId=" + "x" * 513) == (422, "id_too_long")


async def test_a_flood_of_empty_parts_is_refused_early(open_store: Store) -> None:
    body, headers = form(*[('Content-Disposition: form-data; name="x"', b"")] * 1_000)
    pieces = [body[at : at + 1_000] for at in range(0, len(body), 1_000)]
    counted: list[int] = []
    with pytest.raises(Rejected, match="more than 100 parts"):
        await upload(open_store, b"", headers, pieces=pieces, count=counted.append)
    assert sum(counted) < len(body) / 8  # the rest was not read


@pytest.mark.parametrize("media_type", ["audio/x+xml", "video/svg+xml", "audio/html", "video/xml", "audio/javascript"])
def test_a_type_that_a_browser_might_execute_is_an_attachment(media_type: str) -> None:
    assert answer(media_type)["content-disposition"] == "attachment"


@pytest.mark.parametrize("header", ["content-type", "content-disposition"])
async def test_a_long_header_is_refused_before_it_is_parsed(open_store: Store, header: str) -> None:
    long = 'text/plain; a="' + '\\"' * 500_000 + '"'
    assert await refusal(open_store, b"x", {header: long}) == (422, "malformed_upload")


@pytest.mark.parametrize("line", [b"Content-Disposition: form-data; a=" + b"x;" * 500_000, b"X: y\r\n" * 200 + b"Z: z"])
async def test_the_headers_of_a_part_are_limited(open_store: Store, line: bytes) -> None:
    body, headers = form((line.decode(), b"x"))
    with pytest.raises(Rejected, match=r"not valid multipart data: Maximum header (size|count) exceeded"):
        await upload(open_store, body, headers)
