"""Child processes that use a stream; the module imports nothing that is slow to load."""

from multiprocessing.connection import Connection

from fastpath import BatchStream


def keys_of(stream: BatchStream) -> list[bytes]:
    return [batch.keys.tobytes() for batch in stream]


def send_keys(stream: BatchStream, to: Connection) -> None:
    to.send(keys_of(stream))
    to.close()


def send_until_killed(stream: BatchStream, to: Connection) -> None:
    while True:
        to.send(keys_of(stream))
