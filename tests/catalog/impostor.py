"""A program that listens where a Postgres server should, and asks every client for its password."""

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Final

CLEARTEXT: Final = struct.pack("!cII", b"R", 8, 3)
MD5: Final = struct.pack("!cII4s", b"R", 12, 5, b"salt")
#: No question at all: the client is in, and says what it came for.
WELCOME: Final = struct.pack("!cII", b"R", 8, 0) + struct.pack("!cIc", b"Z", 5, b"I")
_ENCRYPTION: Final = (80_877_103, 80_877_104)


@dataclass
class Impostor:
    """Port of the impostor, and everything that clients sent after their user name."""

    port: int
    clients: int = 0
    received: list[bytes] = field(default_factory=list)


@contextmanager
def impostor(question: bytes, port: int = 0) -> Iterator[Impostor]:
    """Listen on a port of 127.0.0.1 until the end of the block."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        found = Impostor(listener.getsockname()[1])
        thread = threading.Thread(target=_serve, args=(listener, question, found), daemon=True)
        thread.start()
        yield found
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()


def _serve(listener: socket.socket, question: bytes, found: Impostor) -> None:
    with suppress(OSError):
        while True:
            client, _ = listener.accept()
            with client, suppress(OSError, struct.error):
                client.settimeout(5)
                found.clients += 1
                _ask(client, question, found)


def _ask(client: socket.socket, question: bytes, found: Impostor) -> None:
    length, code = struct.unpack("!II", client.recv(8, socket.MSG_WAITALL))
    while code in _ENCRYPTION:
        client.sendall(b"N")
        length, code = struct.unpack("!II", client.recv(8, socket.MSG_WAITALL))
    client.recv(length - 8, socket.MSG_WAITALL)
    client.sendall(question)
    while said := client.recv(1 << 16):
        found.received.append(said)
