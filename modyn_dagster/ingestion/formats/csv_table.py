"""CSV bytes to an Arrow table; the same options wherever rows are parsed, so that they always read the same."""

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv

from fastpath.scan import contains
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.ingestion.formats.base import ByteArray
from modyn_dagster.ingestion.formats.tables import arrow_schema

#: Words for a missing number. Text is never missing: these words stay as they are in string columns.
MISSING: Final = ["", "NA", "N/A", "NaN", "nan", "NULL", "null"]
_TRUE: Final = ["true", "True", "TRUE", "1"]
_FALSE: Final = ["false", "False", "FALSE", "0"]
_BLOCK: Final = 1 << 20


def read_rows(data: ByteArray, names: Sequence[str], columns: Sequence[Column], delimiter: str, longest_row: int) -> pa.Table:
    """Rows without a header, at least one.

    Args:
        data: contiguous bytes.
        names: of all columns in the file's order.
        columns: to parse, at least one, with their dtypes.
        delimiter: one ASCII character.
        longest_row: in bytes; Arrow parses in blocks that must hold a row.

    Raises:
        pyarrow.ArrowInvalid: a ragged row, or a cell that is not of its dtype.
    """
    asked = [column.name for column in columns]
    return _read(data, names, delimiter, longest_row, column_types=arrow_schema(columns), include_columns=asked)


def infer_rows(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int) -> pa.Table:
    """The same with all columns, of the dtypes that Arrow sees in them; text that looks like a timestamp stays text."""
    # A timestamp would have to look like the only format given, which none does.
    return _read(data, names, delimiter, longest_row, timestamp_parsers=["%%"])


def _read(data: ByteArray, names: Sequence[str], delimiter: str, longest_row: int, **conversion: Any) -> pa.Table:
    convert = arrow_csv.ConvertOptions(
        null_values=MISSING,
        true_values=_TRUE,
        false_values=_FALSE,
        strings_can_be_null=False,
        # Already checked, and with the row at hand.
        check_utf8=False,
        **conversion,
    )
    # One more block than a row needs: a block may begin in the middle of one.
    data = np.ascontiguousarray(data)
    read = arrow_csv.ReadOptions(column_names=list(names), use_threads=False, block_size=max(_BLOCK, 2 * longest_row + 2))
    parse = arrow_csv.ParseOptions(delimiter=delimiter, newlines_in_values=contains(data, ord('"')))
    return arrow_csv.read_csv(pa.BufferReader(pa.py_buffer(data)), read, parse, convert)
