"""The program of a parser's process: ``python -m modyn_dagster.training.parsing.worker package.module:function per``.

It answers requests on its standard input until that is closed, which also ends it when its parent dies. Nothing is
pickled. Integers are little-endian. A request is the number of samples (uint32), their lengths (int64 each) and their bytes.
An answer is the length of a JSON header (uint32), the header, and the bytes of the arrays that it lists, one after the other.
"""

import json
import os
import queue
import struct
import sys
import threading
from collections.abc import Sequence
from typing import Any, BinaryIO, Final, Literal

import numpy as np

from modyn_dagster.distributed.children import own_pipes, read_exactly
from modyn_dagster.imports import import_callable
from modyn_dagster.training.parsing.function import Columns, Function, NotArrays, ParseFailed

_COUNT: Final = struct.Struct("<I")
#: Kinds of dtype that are plain memory.
_PLAIN: Final = frozenset("biufcmMSU")


def send_blobs(pipe: BinaryIO, blobs: Sequence[Any]) -> None:
    """Write a request."""
    given = [bytes(blob) for blob in blobs]
    pipe.write(_COUNT.pack(len(given)))
    pipe.write(np.array([len(blob) for blob in given], dtype="<i8").tobytes())
    pipe.write(b"".join(given))
    pipe.flush()


def receive_blobs(pipe: BinaryIO) -> list[bytes]:
    """Read a request; ``EOFError`` when the other side is gone."""
    (count,) = _COUNT.unpack(read_exactly(pipe, _COUNT.size))
    lengths = np.frombuffer(read_exactly(pipe, 8 * count), dtype="<i8").tolist()
    return [read_exactly(pipe, length) for length in lengths]


def send_ready(pipe: BinaryIO) -> None:
    """Write that the parser was imported and requests may come."""
    send_columns(pipe, {})


def send_columns(pipe: BinaryIO, columns: Columns) -> None:
    """Write the arrays of an answer; ``NotArrays`` when one holds objects."""
    for name, array in columns.items():
        if array.dtype.kind not in _PLAIN:
            raise NotArrays(f"must return arrays of numbers, {name!r} has dtype {array.dtype}")
    parts = [np.ascontiguousarray(array) for array in columns.values()]
    listed = [[name, part.dtype.str, part.shape] for name, part in zip(columns, parts, strict=True)]
    _send_header(pipe, {"arrays": listed})
    for part in parts:
        pipe.write(part.tobytes())
    pipe.flush()


def send_failure(pipe: BinaryIO, error: ParseFailed | NotArrays) -> None:
    """Write that there are no arrays, and why."""
    position = error.position if isinstance(error, ParseFailed) else None
    _send_header(pipe, {"failed": str(error), "position": position, "returned": isinstance(error, NotArrays)})
    pipe.flush()


def receive_columns(pipe: BinaryIO) -> Columns:
    """Read an answer; raises what the parser's process raised, ``EOFError`` when it is gone."""
    (length,) = _COUNT.unpack(read_exactly(pipe, _COUNT.size))
    header = json.loads(read_exactly(pipe, length))
    if "failed" in header:
        raise NotArrays(header["failed"]) if header["returned"] else ParseFailed(header["position"], header["failed"])
    return {name: _array(pipe, np.dtype(code), shape) for name, code, shape in header["arrays"]}


def _array(pipe: BinaryIO, dtype: np.dtype[Any], shape: Sequence[int]) -> Any:
    size = dtype.itemsize * int(np.prod(shape, dtype=np.int64))
    return np.frombuffer(bytearray(read_exactly(pipe, size)), dtype=dtype).reshape(shape)


def _send_header(pipe: BinaryIO, header: dict[str, Any]) -> None:
    text = json.dumps(header).encode()
    pipe.write(_COUNT.pack(len(text)))
    pipe.write(text)


def main(path: str, per: Literal["batch", "sample"]) -> None:
    """Serve until the parent closes the pipe."""
    requests, answers = own_pipes()
    waiting: queue.SimpleQueue[list[bytes]] = queue.SimpleQueue()
    # A thread of its own, so that the end of the parent ends a parser that is at work.
    threading.Thread(target=_listen, args=(requests, waiting), daemon=True).start()
    function = Function(import_callable(path, source="parser", field="function"), per)
    send_ready(answers)
    while True:
        blobs = waiting.get()
        try:
            send_columns(answers, function(blobs))
        except (ParseFailed, NotArrays) as error:
            send_failure(answers, error)


def _listen(requests: BinaryIO, waiting: "queue.SimpleQueue[list[bytes]]") -> None:
    try:
        while True:
            waiting.put(receive_blobs(requests))
    except (EOFError, OSError):
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1], "sample" if sys.argv[2] == "sample" else "batch")
