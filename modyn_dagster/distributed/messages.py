"""Calls and results on their way between a pool or a group and its workers.

A call is the name of a function and its argument, an answer its result or its error, both in the form of ``codec``. They travel
over pipes of one machine, or over the network of a Ray cluster.
"""

import struct
from collections.abc import Callable
from typing import Any, BinaryIO, Final

from modyn_dagster.distributed.children import read_exactly
from modyn_dagster.distributed.codec import decode, encode
from modyn_dagster.distributed.packed_errors import pack_error, unpack_error
from modyn_dagster.distributed.protocols import Item, Rank, Result
from modyn_dagster.distributed.restoring import imported
from modyn_dagster.errors import ConfigError

_LENGTH: Final = struct.Struct("<Q")
#: Longest message in bytes: more than twice the keys of the largest sample that travels.
_MOST_BYTES: Final = 1 << 35


def send(pipe: BinaryIO, content: bytes) -> None:
    """Write a message."""
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes:
    """Read a message; ``EOFError`` when the other side is gone, or writes what is none."""
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    if length > _MOST_BYTES:
        raise EOFError
    return read_exactly(pipe, length)


def pack_call(function: Callable[..., Any], item: object, *, secrets: bool = True) -> bytes:
    """Encode a call of a module's function.

    Args:
        function: at the top of a module.
        item: its argument.
        secrets: whether secrets of the item travel with it; otherwise the worker finds those of its node.

    Raises:
        ConfigError: another callable, or an item that cannot be sent.
    """
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "." in name or "<" in name:
        rule = "must be a function at the top of a module, which a worker imports by its path"
        raise ConfigError("pool", "function", f"{module}:{name or type(function).__name__}", rule)
    try:
        return encode((module, name, item), secrets=secrets)
    except Exception as error:
        rule = f"must be a value that can be sent to another process ({type(error).__name__}: {error})"
        raise ConfigError("pool", "item", f"a {type(item).__name__}", rule) from error


def answer_call(content: bytes, place: bytes | None = None, *, secrets: bool = True) -> bytes:
    """Make the call of a message, and encode its result or its error.

    Args:
        content: of ``pack_call``.
        place: encoded rank of this process, for a call of the function of a group, which gets it as its first argument.
        secrets: whether secrets of the result travel with it.
    """
    try:
        module, name, item = decode(content)
        arguments = (item,) if place is None else (decode(place), item)
        return encode((imported(module, name)(*arguments), None), secrets=secrets)
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return encode((None, pack_error(error)), secrets=secrets)


def function_of_rank(call: tuple[Callable[[Rank, Item], Result], Rank, Item]) -> Result:
    """Call the function of a group: in the process of a rank."""
    function, rank, argument = call
    return function(rank, argument)


def unpack_answer(content: bytes) -> Any:
    """Return the result of a call, or raise its error; what the worker was doing then is a note of the error."""
    result, failed = decode(content)
    if failed is not None:
        raise unpack_error(failed)
    return result
