"""Errors on their way from a worker to the process that waits for its answer."""

import traceback
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.distributed.codec import decode, encode
from modyn_dagster.distributed.restoring import OURS, imported
from modyn_dagster.errors import RunError

#: Errors that an error was raised from, at most so many.
_MOST_CAUSES: Final = 10


@dataclass(frozen=True, slots=True)
class PackedError:
    """An error as plain values.

    Attributes:
        module: module of its class.
        name: name of its class.
        text: text of the error.
        arguments: encoded ``args``, or the text where they cannot be sent, and fields; of one that cannot be sent its ``repr``.
        trace: stack in the worker.
        before: error that it was raised from, or beside.
        is_cause: it was raised from that one.
    """

    module: str
    name: str
    text: str
    arguments: bytes
    trace: str
    before: "PackedError | None"
    is_cause: bool


def pack_error(error: BaseException, depth: int = 0) -> PackedError:
    """Turn an error and those before it into plain values."""
    earlier = error.__cause__ or error.__context__
    before = None if earlier is None or depth == _MOST_CAUSES else pack_error(earlier, depth + 1)
    fields = {name: value if _encoded(value) is not None else _shown(value) for name, value in vars(error).items()}
    arguments = _encoded((_arguments(error), fields)) or encode(((str(error),), fields))
    trace = "".join(traceback.format_tb(error.__traceback__))
    kind = type(error)
    return PackedError(kind.__module__, kind.__qualname__, str(error), arguments, trace, before, error.__cause__ is not None)


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


def _arguments(error: BaseException) -> tuple[Any, ...]:
    """Arguments from which the class makes the error; those of the operating system name a file beside ``args``."""
    return tuple(error.__reduce__()[1]) if type(error).__module__ == "builtins" else error.args


def _made(packed: PackedError) -> BaseException:
    """An error of its own class without a call of its constructor, unless it is one of Python or has another text then."""
    try:
        kind, (arguments, fields) = imported(packed.module, packed.name), decode(packed.arguments)
        if not issubclass(kind, BaseException):
            raise TypeError(packed.name)
        error: BaseException = kind(*arguments) if packed.module == "builtins" else kind.__new__(kind, *arguments)
        error.__dict__.update(fields)
        if packed.module.partition(".")[0] in OURS or str(error) == packed.text:
            return error
    except Exception:  # noqa: BLE001, S110 - the class is out of reach here, its words are not
        pass
    return RunError(f"{packed.name}: {packed.text}")


def _encoded(value: object) -> bytes | None:
    try:
        return encode(value)
    except Exception:  # noqa: BLE001 - what a foreign error holds may refuse in any way
        return None


def _shown(value: object) -> str:
    try:
        return repr(value)
    except Exception:  # noqa: BLE001 - as above
        return f"<{type(value).__name__}>"
