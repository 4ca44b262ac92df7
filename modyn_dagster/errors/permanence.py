"""Permanent and transient errors: whether another attempt at the same work can succeed."""

from collections.abc import Iterator
from typing import Final

from modyn_dagster.errors.inputs import ConfigError, DataError
from modyn_dagster.errors.running import WrongShape
from modyn_dagster.errors.storage import CatalogError, CorruptFile

#: Faults of specs, files and code: the next attempt reads the same ones.
_PERMANENT: Final = (
    ConfigError,
    DataError,
    CorruptFile,
    WrongShape,
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    SyntaxError,
    NotImplementedError,
)
#: Faults of a machine or a server: EIO, ENOSPC, EROFS, EMFILE, no memory, a database that restarts.
_TRANSIENT: Final = (OSError, MemoryError, CatalogError)


def is_permanent(error: BaseException) -> bool:
    """Test that an error comes again with every attempt; False for errors that are neither.

    An error counts with its causes, and a transient cause prevails: user code that cannot open a file is refused by a
    ``ConfigError`` whose cause is an ``OSError``.
    """
    chain = list(_with_causes(error))
    return any(isinstance(each, _PERMANENT) for each in chain) and not any(isinstance(each, _TRANSIENT) for each in chain)


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__
