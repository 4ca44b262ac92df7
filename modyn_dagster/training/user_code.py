"""Errors out of user code, told with the place it stands in."""

import contextlib
from collections.abc import Iterator

from modyn_dagster.errors import ModynError, TrainingError


@contextlib.contextmanager
def user_code(what: str) -> Iterator[None]:
    """Turn whatever user code raises into a ``TrainingError`` that begins with ``what``; ours pass unchanged."""
    try:
        yield
    except ModynError:
        raise
    except Exception as error:
        raise TrainingError(f"{what} failed: {type(error).__name__}: {error}") from error
