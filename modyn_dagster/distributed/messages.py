"""Calls, results and errors on their way between a pool and its workers.

They are pickled, and travel between processes of ours alone: over pipes of one machine, or over the network of a Ray cluster,
which its token guards. Nothing is ever unpickled from a file.
"""

import importlib
import pickle
import struct
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO, Final

from modyn_dagster.distributed.children import read_exactly
from modyn_dagster.distributed.protocols import Item, Rank, Result
from modyn_dagster.errors import ConfigError, RunError

_LENGTH: Final = struct.Struct("<Q")
#: Packages whose errors arrive with their own class and fields, whatever arguments it takes to make one.
_OURS: Final = ("fastpath", "modyn_dagster")
#: Errors that an error was raised from, at most so many.
_MOST_CAUSES: Final = 10


def send(pipe: BinaryIO, content: bytes) -> None:
    """Write a message."""
    pipe.write(_LENGTH.pack(len(content)))
    pipe.write(content)
    pipe.flush()


def receive(pipe: BinaryIO) -> bytes:
    """Read a message; ``EOFError`` when the other side is gone."""
    (length,) = _LENGTH.unpack(read_exactly(pipe, _LENGTH.size))
    return read_exactly(pipe, length)


def pack_call(function: Callable[[Any], Any], item: object) -> bytes:
    """Encode a call of a module's function; ``ConfigError`` for another callable, and for an item that cannot be pickled."""
    module, name = getattr(function, "__module__", None), getattr(function, "__qualname__", "")
    if module in (None, "__main__") or "." in name or "<" in name:
        rule = "must be a function at the top of a module, which a worker imports by its path"
        raise ConfigError("pool", "function", f"{module}:{name or type(function).__name__}", rule)
    try:
        return pickle.dumps((module, name, item))
    except Exception as error:
        rule = f"must be a value that can be pickled ({type(error).__name__}: {error})"
        raise ConfigError("pool", "item", f"a {type(item).__name__}", rule) from error


def answer_call(content: bytes) -> bytes:
    """Make the call of a message, and encode its result or its error."""
    try:
        module, name, item = pickle.loads(content)  # noqa: S301 - from the process that hands out the calls
        return pickle.dumps((getattr(importlib.import_module(module), name)(item), None))
    except BaseException as error:  # noqa: BLE001 - raised again by the caller
        return pickle.dumps((None, pack_error(error)))


def function_of_rank(call: tuple[Callable[[Rank, Item], Result], Rank, Item]) -> Result:
    """Call the function of a group: in the process of a rank."""
    function, rank, argument = call
    return function(rank, argument)


def unpack_answer(content: bytes) -> Any:
    """Return the result of a call, or raise its error; what the worker was doing then is a note of the error."""
    result, failed = pickle.loads(content)  # noqa: S301 - from a worker of ours
    if failed is not None:
        raise unpack_error(failed)
    return result


@dataclass(frozen=True, slots=True)
class PackedError:
    """An error as plain values.

    Attributes:
        whole: the pickled error, where pickling keeps its class and its text.
        module: module of its class.
        name: name of its class.
        text: text of the error.
        arguments: pickled ``args`` and fields, where they can be pickled.
        trace: stack in the worker.
        before: error that it was raised from, or beside.
        is_cause: it was raised from that one.
    """

    whole: bytes | None
    module: str
    name: str
    text: str
    arguments: bytes | None
    trace: str
    before: "PackedError | None"
    is_cause: bool


def pack_error(error: BaseException, depth: int = 0) -> PackedError:
    """Turn an error and those before it into plain values."""
    earlier = error.__cause__ or error.__context__
    before = None if earlier is None or depth == _MOST_CAUSES else pack_error(earlier, depth + 1)
    kind, text = type(error), str(error)
    is_ours = kind.__module__.partition(".")[0] in _OURS
    fields = {name: value for name, value in vars(error).items() if _pickled(value) is not None}
    arguments = _pickled((error.args, fields))
    trace = "".join(traceback.format_tb(error.__traceback__))
    whole = None if is_ours else _whole(error, text)
    return PackedError(whole, kind.__module__, kind.__qualname__, text, arguments, trace, before, error.__cause__ is not None)


def unpack_error(packed: PackedError) -> BaseException:
    """Make the error again, with those that it was raised from."""
    error = _made(packed)
    if packed.before is not None:
        before = unpack_error(packed.before)
        error.__context__, error.__cause__ = before, before if packed.is_cause else None
        error.__suppress_context__ = packed.is_cause
    if packed.trace:
        error.add_note(f"in a worker process:\n{packed.trace}")
    return error


def _made(packed: PackedError) -> BaseException:
    if packed.whole is not None:
        whole: BaseException = pickle.loads(packed.whole)  # noqa: S301 - from a worker of ours
        return whole
    try:
        kind = getattr(importlib.import_module(packed.module), packed.name)
        arguments, fields = pickle.loads(packed.arguments or b"")  # noqa: S301 - from a worker of ours
        error: BaseException = kind.__new__(kind, *arguments)
    except Exception:  # noqa: BLE001 - the class is out of reach here, its words are not
        return RunError(f"{packed.name}: {packed.text}")
    error.__dict__.update(fields)
    return error


def _pickled(value: object) -> bytes | None:
    try:
        return pickle.dumps(value)
    except Exception:  # noqa: BLE001 - what a foreign error holds may refuse in any way
        return None


def _whole(error: BaseException, text: str) -> bytes | None:
    content = _pickled(error)
    try:
        again = None if content is None else pickle.loads(content)  # noqa: S301 - just pickled
    except Exception:  # noqa: BLE001 - the class takes other arguments than it keeps
        return None
    return content if type(again) is type(error) and str(again) == text else None
