"""Containment of faults: an exception that nobody foresaw fails the batch whose files caused it, and no other."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import psycopg2
from psycopg2 import errorcodes
from sqlalchemy.exc import DBAPIError

from modyn_dagster.errors import ModynError, UnexpectedFault

#: Classes of Postgres' errors that say that it cannot store a value: the same batch would meet them again.
_REFUSED_VALUES: Final = (errorcodes.CLASS_DATA_EXCEPTION, errorcodes.CLASS_PROGRAM_LIMIT_EXCEEDED)


@contextmanager
def contained(path: str) -> Iterator[None]:
    """Turn an exception that the content of a file may cause, and that nobody foresaw, into an ``UnexpectedFault``.

    Errors of ours pass, as does what may be over at the next attempt: errors of the operating system, and all of Postgres but
    the refusal of a value. A lack of memory is a fault of the file: a batch that is too large now is too large for ever.
    """
    try:
        yield
    except (ModynError, OSError):
        raise
    except (DBAPIError, psycopg2.Error) as error:
        if not _is_refused_value(error):
            raise
        raise UnexpectedFault(path, error) from error
    except Exception as error:
        raise UnexpectedFault(path, error) from error


@contextmanager
def contained_in_memory(path: str) -> Iterator[None]:
    """As ``contained``, for a block that only computes: an ``OSError`` in it comes from a parser, which will raise it again."""
    with contained(path):
        try:
            yield
        except OSError as error:
            raise UnexpectedFault(path, error) from error


def _is_refused_value(error: DBAPIError | psycopg2.Error) -> bool:
    cause = error.orig if isinstance(error, DBAPIError) else error
    code = cause.pgcode if isinstance(cause, psycopg2.Error) else None
    return code is not None and code[:2] in _REFUSED_VALUES
