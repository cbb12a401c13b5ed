"""HTTP/2 as real servers use it: over TLS, chosen by ALPN, many runs on one connection, against Hypercorn."""

import asyncio
import datetime
import gc
import ssl
import threading
from contextlib import contextmanager, suppress

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID
from hypercorn.asyncio import serve
from hypercorn.config import Config
from serving import Gate, free_port
from twins import error_while_closing
from waiting import DEADLINE, wait_until

from aguila import App, AsyncClient
from aguila.client import Timeouts
from aguila.errors import HTTPRejected, StreamTruncated, TransportFailed


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    """The paths of a self-signed certificate for 127.0.0.1, and of its key."""
    folder = tmp_path_factory.mktemp("tls")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "127.0.0.1")])
    now = datetime.datetime.now(datetime.UTC)
    signed = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(signed.public_bytes(serialization.Encoding.PEM))
    plain = serialization.NoEncryption()
    pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    (folder / "key.pem").write_bytes(pem)
    return folder / "cert.pem", folder / "key.pem"


pytestmark = [
    pytest.mark.filterwarnings("ignore:.*TCPServer:pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.anyio,
]


class Hypercorn:
    """An app on Hypercorn in a thread, with the HTTP versions of its connections."""

    def __init__(self, app, certificate):
        self.versions: list[str] = []
        self.peers: set[object] = set()
        self._app = app
        config = Config()
        self.port = free_port()
        config.bind = [f"127.0.0.1:{self.port}"]
        config.certfile, config.keyfile = map(str, certificate)
        config.loglevel = "CRITICAL"
        self._config = config
        self._ready = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()))
        self.url = f"https://localhost:{self.port}"

    async def _seen(self, scope, receive, send):
        if scope["type"] == "http":
            self.versions.append(scope["http_version"])
            self.peers.add(tuple(scope["client"]))
        await self._app(scope, receive, send)

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        await serve(self._seen, self._config, shutdown_trigger=self._stop.wait)

    def __enter__(self):
        self._thread.start()
        assert self._ready.wait(DEADLINE)
        return self

    def __exit__(self, *_):
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(DEADLINE)
        assert not self._thread.is_alive()
        gc.collect()  # Hypercorn 0.18 leaves coroutines unfinished at times: they are found here, where that is known


@pytest.fixture
def trusted(certificate):
    return {"http2": True, "verify": ssl.create_default_context(cafile=str(certificate[0])), "trust_env": False}


@contextmanager
def connected(twin, server, options, **rest):
    """Yield a client when the server answers. It is closed first, because the server waits for its connections."""
    client = twin.client(server.url, options=options, **rest)

    def answers():
        try:
            twin.wait(client.capabilities())
            return bool(server.versions)
        except TransportFailed:
            return False

    wait_until(answers)
    try:
        yield client
    finally:
        twin.wait(client.close())


def test_a_run_over_http_2_is_read_event_by_event(twin, certificate, trusted):
    gate = Gate()

    async def agent(run):
        yield "one "
        await gate.wait()
        yield "two"

    with Hypercorn(App(agent), certificate) as server, connected(twin, server, trusted) as client:
        thread = client.thread()
        seen = []

        def first(event):
            seen.append(event.type)
            if event.type == "TEXT_MESSAGE_CONTENT":
                gate.open()  # so it came before the agent continued

        twin.events(thread.run("x"), until=first)
        assert thread.messages[-1].content == "one two"
        assert seen[0] == "RUN_STARTED"
        assert seen[-1] == "RUN_FINISHED"
        assert set(server.versions) == {"2"}


async def test_runs_at_the_same_time_share_a_connection(certificate, trusted):
    here: list[str] = []
    full = Gate()

    async def agent(run):
        here.append(run.thread_id)
        if len(here) == 10:
            full.open()
        await full.wait()
        yield f"for {run.thread_id}"

    with Hypercorn(App(agent), certificate) as server:
        async with AsyncClient(server.url, options=trusted) as client:
            async with asyncio.timeout(DEADLINE):
                while not server.versions:  # Hypercorn listens a moment later
                    with suppress(TransportFailed):
                        await client.capabilities()
            threads = [client.thread(f"t{i}") for i in range(10)]
            results = await asyncio.gather(*(thread.run("x") for thread in threads))
            assert [result.text for result in results] == [f"for t{i}" for i in range(10)]
        assert len(server.peers) == 1


def test_a_run_can_be_left_and_cancelled_and_the_next_one_begun(twin, certificate, trusted):
    gate = Gate()

    async def agent(run):
        yield "one"
        if run.messages[-1].content == "wait":
            await gate.wait()

    with Hypercorn(App(agent), certificate) as server, connected(twin, server, trusted) as client:
        thread = client.thread()
        twin.events(thread.run("wait"), until=lambda event: event.type == "TEXT_MESSAGE_CONTENT")  # and disconnect
        assert twin.wait(thread.cancel())

        def next_run():
            # Hypercorn 0.18 fails on the stream that was reset, and drops the connection, perhaps under the next run.
            try:
                return twin.result(client.thread().run("x")).text
            except StreamTruncated:
                return None

        assert wait_until(next_run) == "one"


def test_refusals_and_silence_over_http_2_are_what_they_are_otherwise(twin, certificate, trusted):
    gate = Gate()

    async def agent(run):
        await gate.wait()
        yield "late"

    patience = {"reconnect": None, "timeouts": Timeouts(idle=0.2, first_event=5)}
    with (
        Hypercorn(App(agent, heartbeat=3600), certificate) as server,
        connected(twin, server, trusted, **patience) as client,
    ):
        with pytest.raises(HTTPRejected) as refused:
            twin.wait(client.thread("nobody").refresh())
        assert (refused.value.status, refused.value.code) == (404, "not_found")
        with pytest.raises(StreamTruncated):
            twin.result(client.thread().run("x"))
        gate.open()


def test_closing_the_client_ends_a_run_over_http_2(twin, certificate, trusted):
    gate, is_waiting = Gate(), threading.Event()

    async def agent(run):
        yield "one"
        is_waiting.set()
        await gate.wait()

    with (
        Hypercorn(App(agent, heartbeat=3600), certificate) as server,
        connected(twin, server, trusted) as client,
    ):
        error = error_while_closing(twin, client, client.thread().run("x"), is_waiting)
        assert str(error) == "the client was closed"
        gate.open()
