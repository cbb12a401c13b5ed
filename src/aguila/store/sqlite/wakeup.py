"""Wake-ups between the processes that share a file: datagrams over the loopback interface.

A process that listens has a row in ``peers``: a port and a secret token. A process that commits a change sends the
names of the changed threads to each peer. A datagram carries no data: the receiver reads the file. If a datagram is
lost, forged or late, the next poll makes up for it. A peer whose port is closed is removed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence

import msgspec

from aguila.codec.json.bounded_floats import json_decoder
from aguila.store.live import ThreadKey

_log = logging.getLogger("aguila.store")

_HOST = "127.0.0.1"
_MAX_DATAGRAM = 8192
_MAX_AT_ONCE = 64


class _Notice(msgspec.Struct, array_like=True):
    """A datagram: the threads that changed. An empty list means that any thread may have changed."""

    token: str
    keys: list[ThreadKey]


class Listener:
    """Receive wake-ups; call ``on_change`` with the threads that changed, or with none if any may have changed.

    It uses a plain socket, not a transport: the socket must be closed even after its event loop was closed.
    """

    def __init__(self, on_change: Callable[[Sequence[ThreadKey]], None]) -> None:
        self.token = secrets.token_hex(16)
        self.port: int | None = None
        self._on_change = on_change
        self._decoder = json_decoder(_Notice)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._socket: socket.socket | None = None

    def open(self) -> None:
        """Listen on a loopback port. If that is not possible, the store only polls."""
        receiver: socket.socket | None = None
        try:
            receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            receiver.setblocking(False)
            receiver.bind((_HOST, 0))
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(receiver.fileno(), self._receive)
        except (OSError, NotImplementedError) as error:  # NotImplementedError: the default loop of Windows
            _log.info("cannot receive wake-ups from other processes, polling instead: %s", error)
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
        """Close the socket after the event loop was closed."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _receive(self) -> None:
        """Read some datagrams. A limit lets other callbacks run between them."""
        for _ in range(_MAX_AT_ONCE):
            if self._socket is None:
                return
            try:
                data = self._socket.recv(_MAX_DATAGRAM)
            except BlockingIOError:
                return
            except OSError as error:
                _log.debug("cannot read a wake-up: %s", error)
                return
            self.handle(data)

    def handle(self, data: bytes) -> None:
        """Report the changes in a datagram if it carries our token."""
        try:
            notice = self._decoder.decode(data)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return  # any process of this machine can send to the port
        if secrets.compare_digest(notice.token.encode(), self.token.encode()):
            self._on_change(notice.keys)


class Sender:
    """Send wake-ups to other processes. ``own_token`` is the token of this process."""

    def __init__(self, own_token: str) -> None:
        self._own_token = own_token
        self._sockets: dict[tuple[str, int], socket.socket] = {}
        self._dead: list[str] = []

    def send(self, peers: Sequence[tuple[str, int]], keys: Iterable[ThreadKey]) -> None:
        """Send the changed threads to all other peers, without waiting."""
        for peer in self._sockets.keys() - set(peers):
            self._sockets.pop(peer).close()
        changed = list(keys)
        for peer in peers:
            token, port = peer
            if token == self._own_token:
                continue
            data = msgspec.json.encode(_Notice(token, changed))
            if len(data) > _MAX_DATAGRAM:
                data = msgspec.json.encode(_Notice(token, []))
            try:
                sender = self._sockets.get(peer)
                if sender is None:
                    # Only a connected socket reports a closed port (with a later send).
                    sender = self._sockets[peer] = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
                    sender.setblocking(False)
                    sender.connect((_HOST, port))
                sender.send(data)
            except (ConnectionRefusedError, ConnectionResetError):
                self._dead.append(token)
            except OSError as error:  # full buffer or no free socket: the peer polls
                _log.debug("cannot send a wake-up: %s", error)

    def has_others(self, peers: Sequence[tuple[str, int]]) -> bool:
        """Return whether another process has the file open."""
        return any(token != self._own_token for token, _ in peers)

    def take_dead(self) -> Sequence[str]:
        """Return the tokens of the peers that were found dead since the last call."""
        dead, self._dead = self._dead, []
        return dead

    def close(self) -> None:
        """Close all sockets."""
        for sender in self._sockets.values():
            with contextlib.suppress(OSError):
                sender.close()
        self._sockets.clear()
