"""Errors out of user code, told with the place it stands in."""

from types import TracebackType

from modyn_dagster.errors import ModynError, TrainingError


class user_code:  # noqa: N801 - used as a function; a class, for it stands around every step
    """Turn whatever user code raises into a ``TrainingError`` that begins with ``what``; ours pass unchanged."""

    __slots__ = ("_what",)

    def __init__(self, what: str) -> None:
        self._what = what

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, Exception) and not isinstance(error, ModynError):
            raise TrainingError(f"{self._what} failed: {type(error).__name__}: {error}") from error
