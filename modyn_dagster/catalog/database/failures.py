"""Failures of batches as the catalog keeps them: the error, the states of the files, and the traceback of a fault."""

from collections.abc import Mapping
from typing import Any, Final

from modyn_dagster.errors import shortened

#: Field of a failed batch's source with the states that its files had when it failed.
FAILED_STATES: Final = "seen"
#: Field of a failed batch's source with the traceback of an exception that nobody foresaw.
TRACEBACK: Final = "traceback"
#: Characters of an error that are kept: a message may quote a whole header.
_LONGEST_ERROR: Final = 4000


def failed_values(
    source: Mapping[str, Any], error: str, file_states: Mapping[str, Any], traceback: str | None = None
) -> dict[str, Any]:
    """Columns of a batch that is closed with a reason.

    Args:
        source: of the batch.
        error: may quote a file: it is kept without what Postgres cannot hold, and without its excess length.
        file_states: JSON; tells later whether the files have changed.
        traceback: of an exception that nobody foresaw.
    """
    kept = {**source, FAILED_STATES: file_states}
    if traceback is not None:
        kept[TRACEBACK] = _storable(traceback)
    return {"state": "failed", "error": _storable(shortened(error, _LONGEST_ERROR)), "source": kept}


def without_failure(source: Mapping[str, Any]) -> dict[str, Any]:
    """The source of a failed batch as it was announced, to deliver it again."""
    return {name: value for name, value in source.items() if name not in (FAILED_STATES, TRACEBACK)}


def _storable(text: str) -> str:
    """A text with escapes in place of null characters and lone surrogates."""
    return text.replace("\0", "\\x00").encode("utf-8", "backslashreplace").decode("utf-8")
