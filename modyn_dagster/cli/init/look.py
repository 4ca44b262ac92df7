"""A look at the data of a user: format, columns and values of the first rows, and the extent of all."""

import glob
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.rows.row_decoding import is_sub_array
from modyn_dagster.errors import ConfigError, DataError
from modyn_dagster.ingestion.containment import contained, contained_in_memory
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.formats.base import OpenRows
from modyn_dagster.ingestion.preview.heads import head_of
from modyn_dagster.ingestion.sources.files import natural_key
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.spec.formats import CsvFormat, JsonlFormat, ParquetFormat

#: Formats by the end of a file's name.
FORMATS: Final[Mapping[str, str]] = {
    ".csv": "csv",
    ".tsv": "csv",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".parquet": "parquet",
    ".pq": "parquet",
}
#: Bytes of a file that is looked at as a whole; of larger ones the first rows are.
WHOLE: Final = 64 << 20
#: Names that a message lists.
LISTED: Final = 20
_DELIMITERS: Final = ",;\t|"
_TextOrParquet = CsvFormat | JsonlFormat | ParquetFormat


@dataclass(frozen=True)
class Rows:
    """Rows of one file: all, or the first.

    Attributes:
        columns: in order.
        values: per column, each of the same length; nulls of columns of lists.
        texts: of columns of integers, as they are written.
        is_whole: these are all rows of the file.
        n_rows: of the file; estimated by its size unless ``is_whole`` or Parquet says it.
    """

    columns: Sequence[Column]
    values: Mapping[str, pa.Array]
    texts: Mapping[str, pa.Array]
    is_whole: bool
    n_rows: int

    @classmethod
    def of(cls, source: LocalSource, content: Mapping[str, Any], name: str) -> "Rows":
        """Read a file, or its head if it is large. Raises ``DataError``."""
        format: _TextOrParquet = TypeAdapter(_TextOrParquet).validate_python(content)
        with contained(name):
            size = source.state(name).size
            loaded = source.load(name) if size <= WHOLE else head_of(source, format, name)
            with contained_in_memory(name):
                rows = row_format(format).open(loaded)
                columns = [column.resolved() for column in rows.find_columns()]
                scalars = {column.name for column in columns if not is_sub_array(column.dtype)}
                values = rows.convert(columns, scalars)
                values |= {column.name: pa.nulls(len(rows)) for column in columns if column.name not in scalars}
                texts = _texts(rows, format, columns)
        n_rows = len(rows)
        if size > WHOLE:
            n_rows = _count(source, format, name) or round(n_rows * size / max(1, len(loaded.data)))
        return cls(columns, values, texts, size <= WHOLE, n_rows)

    def written(self, name: str) -> pa.Array:
        """Values of a column as text where they are integers, else as they are."""
        values = self.values[name]
        return self.texts.get(name, values.cast(pa.string()) if pa.types.is_integer(values.type) else values)


@dataclass(frozen=True)
class Look:
    """Findings about a file, or a folder of files of one kind.

    Attributes:
        root: folder with the file or files.
        pattern: glob for them below it.
        format: block of the dataset's spec.
        first: rows of the first file.
        last: rows of the last one; the same where there is one.
        n_files: files.
        n_rows: of all files; estimated by their sizes unless ``is_whole``.
    """

    root: Path
    pattern: str
    format: Mapping[str, Any]
    first: Rows
    last: Rows
    n_files: int
    n_rows: int

    @property
    def names(self) -> list[str]:
        """Names of the columns, in order."""
        return [column.name for column in self.first.columns]

    @property
    def is_whole(self) -> bool:
        """All rows were looked at."""
        return self.n_files == 1 and self.first.is_whole


def refused(option: str, value: object, rule: str) -> ConfigError:
    """Error about an option of the command."""
    return ConfigError("init", option, value, rule)


def listed(names: Sequence[str]) -> str:
    """Some names for a message, in quotes as they may hold anything.

    >>> listed(["a", "b c"]), listed([])
    ("'a', 'b c'", 'none')
    """
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return (", ".join(repr(name[:100]) for name in names[:LISTED]) or "none") + more


def look_at(path: Path) -> Look:
    """Look at a CSV, JSON lines or Parquet file, or at the first and the last of a folder of such.

    Raises:
        ConfigError: there is no such file, or it is of another kind.
        DataError: it cannot be cut into rows.
    """
    path = _existing(path)
    names = _names_in(path) if path.is_dir() else [path.name]
    root, suffix = (path if path.is_dir() else path.parent), Path(names[0]).suffix
    source = LocalSource(root)
    content = _format(FORMATS[suffix.lower()], root / names[0])
    first = _first_rows(source, content, names[0])
    last = first if len(names) == 1 else Rows.of(source, content, names[-1])
    sizes = [source.state(name).size for name in names]
    n_rows = first.n_rows if len(names) == 1 else max(1, round(first.n_rows * sum(sizes) / max(1, sizes[0])))
    pattern = glob.escape(names[0]) if path.is_file() else f"*{glob.escape(suffix)}"
    return Look(root, pattern, content, first, last, len(names), n_rows)


def _texts(rows: OpenRows, format: _TextOrParquet, columns: Sequence[Column]) -> Mapping[str, pa.Array]:
    """Integers as they are written in CSV, where a date such as 01022025 loses its zero as a number."""
    names = {column.name for column in columns if column.dtype == "int64"}
    if not isinstance(format, CsvFormat) or not names:
        return {}
    with suppress(DataError):
        return rows.convert([Column(each.name, "string") if each.name in names else each for each in columns], names)
    return {}


def _count(source: LocalSource, format: _TextOrParquet, name: str) -> int | None:
    if not isinstance(format, ParquetFormat):
        return None
    with suppress(pa.ArrowException, OSError):
        return int(pq.read_metadata(source.locate(name)).num_rows)
    return None


def _first_rows(source: LocalSource, content: Mapping[str, Any], name: str) -> Rows:
    try:
        first = Rows.of(source, content, name)
    except DataError as error:
        if error.column is None or error.row is not None:
            raise
        # In a header: where there is none, its names are the values of the first row.
        message = f"{error.message}; if these names are values, give the file a header line"
        raise DataError(error.file, message, column=error.column) from error
    if not first.columns:
        raise DataError(name, "the rows have no columns")
    return first


def _existing(path: Path) -> Path:
    try:
        str(path).encode()
        real = path.resolve(strict=True)
    except UnicodeEncodeError:
        raise refused("--from", str(path), "must have a name in UTF-8; rename it") from None
    except (OSError, RuntimeError, ValueError) as error:
        problem = getattr(error, "strerror", None) or error
        raise refused("--from", str(path), f"must be a file or a folder that exists: {problem}") from None
    if real.is_dir():
        return real
    if not real.is_file():
        raise refused("--from", str(path), "must be a file or a folder")
    if real.suffix.lower() not in FORMATS:
        raise refused("--from", str(path), f"must end in one of {', '.join(FORMATS)}; unpack or convert it")
    return real


def _names_in(folder: Path) -> list[str]:
    names = [path.name for path in folder.iterdir() if path.is_file() and not path.name.startswith(".")]
    known = [name for name in names if Path(name).suffix.lower() in FORMATS]
    suffixes = sorted({Path(name).suffix for name in known})
    if len(suffixes) != 1:
        held = ", ".join(suffixes) or f"none of {', '.join(FORMATS)} (folders in it are not searched)"
        raise refused("--from", str(folder), f"must be a folder with files of one kind; this one has {held}")
    return sorted(known, key=natural_key)


def _format(kind: str, path: Path) -> dict[str, Any]:
    """Block of the spec; of CSV with the delimiter that the header has most of, if that is no comma."""
    if kind != "csv":
        return {"kind": kind}
    with open(path, "rb") as file:
        header = file.readline(1 << 16).decode(errors="replace")
    counts = {delimiter: header.count(delimiter) for delimiter in _DELIMITERS}
    delimiter = max(counts, key=lambda each: counts[each])
    return {"kind": "csv"} if delimiter == "," or not counts[delimiter] else {"kind": "csv", "delimiter": delimiter}
