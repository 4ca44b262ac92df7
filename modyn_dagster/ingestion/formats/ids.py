"""Ids of samples as text: integers in decimal, text as it is, several columns with a separator between."""

from collections.abc import Sequence
from pathlib import PurePosixPath
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from modyn_dagster.errors import DataError

#: Between the columns of an id: the control character that ASCII has for it.
SEPARATOR: Final = "\x1f"
#: Bytes of an id: Postgres' indexes hold no texts of thousands of bytes.
_LONGEST: Final = 500


def shown_id(id: str) -> str:
    """An id as a message names it.

    >>> shown_id("17"), shown_id("17\\x1fA")
    ("'17'", "('17', 'A')")
    """
    parts = id.split(SEPARATOR)
    return repr(id) if len(parts) == 1 else f"({', '.join(map(repr, parts))})"


def ids_of_rows(columns: Sequence[tuple[str, pa.Array]], file: str) -> pa.Array:
    """Ids of n rows (Arrow ``string``), from their columns with names.

    Raises ``DataError`` naming row and column: an id is missing, too long, or neither an integer nor text.
    """
    texts = [_texts(values, file, name) for name, values in columns]
    if len(texts) == 1:
        return texts[0]
    ids = pc.binary_join_element_wise(*texts, pa.scalar(SEPARATOR, pa.string()))
    _refuse(pc.greater(pc.binary_length(ids), _LONGEST), f"an id has at most {_LONGEST} bytes", file, columns[0][0])
    return ids


def ids_of_files(paths: Sequence[str], source: str) -> pa.Array:
    """Ids of samples that are files: names with suffix (``source`` is ``file_name``), or paths below the root.

    >>> ids_of_files(["a/1.png", "b/2.png"], "file_name").to_pylist()
    ['1.png', '2.png']
    """
    names = [PurePosixPath(path).name if source == "file_name" else path for path in paths]
    for path, name in zip(paths, names):
        if len(name.encode()) > _LONGEST:
            raise DataError(path, f"an id has at most {_LONGEST} bytes, and the {source.replace('_', ' ')} is the id")
    return pa.array(names, pa.string())


def _texts(values: pa.Array, file: str, column: str) -> pa.Array:
    is_text = pa.types.is_string(values.type) or pa.types.is_large_string(values.type)
    if not is_text and not pa.types.is_integer(values.type):
        advice = "pin its dtype in `columns` of the format, and see that no row lacks it"
        raise DataError(file, f"an id is an integer or text, this column is {values.type}; {advice}", column=column)
    texts = values.cast(pa.string())
    _refuse(pc.equal(texts, ""), "the id is missing", file, column)
    _refuse(pc.match_substring_regex(texts, r"[\x00\x1f]"), "an id holds no null and no separator character", file, column)
    _refuse(pc.greater(pc.binary_length(texts), _LONGEST), f"an id has at most {_LONGEST} bytes", file, column)
    return texts


def _refuse(bad: pa.Array, problem: str, file: str, column: str) -> None:
    if pc.any(bad).as_py():
        row = int(np.argmax(bad.to_numpy(zero_copy_only=False)))
        raise DataError(file, problem, row=row + 1, column=column)
