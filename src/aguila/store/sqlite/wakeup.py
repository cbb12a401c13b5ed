"""Layer: store. Wake-ups between the processes that share a file, by datagrams over the loopback interface.

A process that listens has a row in ``peers``: a port and a secret token. Whoever commits a change sends each of them
the names of the threads concerned. A datagram says "look again" and nothing else: what is there is read from the file,
and one that is lost, forged or late costs a poll at most. A peer whose port nobody listens on is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aguila.store.feed import Key

_log = logging.getLogger("aguila.store")

_HOST = "127.0.0.1"
_MAX_DATAGRAM = 8192
_MAX_AT_ONCE = 64


class _Notice(msgspec.Struct, array_like=True):
    """The threads that changed; none means: any may have."""

    token: str
    keys: list[Key]


class Listener:
    """Receive wake-ups. ``look`` is called with the threads that changed, or with none if any may have changed.

    The socket is our own, not a transport of the event loop: it has to be closed also when that loop is closed already.
    """

    def __init__(self, look: Callable[[Sequence[Key]], None]) -> None:
        self.token = secrets.token_hex(16)
        self.port: int | None = None
        self._look = look
        self._decoder = msgspec.json.Decoder(_Notice)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen. Where that is not possible, the store polls."""
        receiver: socket.socket | None = None
        try:
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.setblocking(False)
            receiver.bind((_HOST, 0))
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(receiver.fileno(), self._receive)
        except (OSError, NotImplementedError) as error:  # the latter from the default loop of Windows
            _log.info("no wake-ups from other processes, polling instead: %s", error)
            if receiver is not None:
                receiver.close()
        else:
            self._socket, self.port = receiver, receiver.getsockname()[1]

    def close(self) -> None:
        """Stop listening."""
        if self._socket is not None and self._loop is not None:
            self._loop.remove_reader(self._socket.fileno())
        self.abandon()

    def abandon(self) -> None:
        """Close the socket without the event loop, when that is closed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _receive(self) -> None:
        """Read what has arrived, up to a limit: other callbacks get their turn before the rest."""
        for _ in range(_MAX_AT_ONCE):
            if self._socket is None:
                return
            try:
                data = self._socket.recv(_MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError as error:
                _log.debug("a wake-up could not be read: %s", error)
                return
            self.handle(data)

    def handle(self, data: bytes) -> None:
        """Look again, if the sender has read our token in the file."""
        try:
            notice = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # not one of ours: anybody on this machine can send here
        if secrets.compare_digest(notice.token.encode(), self.token.encode()):
            self._look(notice.keys)


class Sender:
    """The sending end, for whoever writes. ``own`` is the token that is not sent to."""

    def __init__(self, own: str) -> None:
        self._own = own
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._dead: list[str] = []

    def send(self, peers: Sequence[tuple[str, int]], keys: Iterable[Key]) -> None:
        """Tell all peers which threads have changed. Never waits."""
        for gone in self._sockets.keys() - set(peers):
            self._sockets.pop(gone).close()
        changed = list(keys)
        for peer in peers:
            token, port = peer
            if token == self._own:
                continue
            data = msgspec.json.encode(_Notice(token, changed))
            if len(data) > _MAX_DATAGRAM:
                data = msgspec.json.encode(_Notice(token, []))
            try:
                sender = self._sockets.get(peer)
                if sender is None:
                    # Connected, because only then a port that nobody listens on is reported (by a later send).
                    sender = self._sockets[peer] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    sender.setblocking(False)
                    sender.connect((_HOST, port))
                sender.send(data)
            except (ConnectionRefusedError, ConnectionResetError):
                self._dead.append(token)
            except OSError as error:  # its buffer is full, or we have no sockets left: it will poll
                _log.debug("a wake-up was not sent: %s", error)

    def has_others(self, peers: Sequence[tuple[str, int]]) -> bool:
        """Whether there is anybody to tell."""
        return any(token != self._own for token, _ in peers)

    def take_dead(self) -> Sequence[str]:
        """The peers that turned out to be gone since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def close(self) -> None:
        """Close all sockets."""
        for sender in self._sockets.values():
            with contextlib.suppress(OSError):
                sender.close()
        self._sockets.clear()
