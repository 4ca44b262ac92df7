"""Heads of files: whole rows from the beginning, whatever stands in them."""

import csv
import io
import json
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import DataError
from modyn_dagster.ingestion.formats import row_format
from modyn_dagster.ingestion.preview.heads import head_of
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.ingestion.sources.source import RemoteSource, Source
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat, ParquetFormat

CELLS = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"], exclude_characters="\0\ufeff"), max_size=12)
NUMBERS = np.dtype([("x", "<f4"), ("y", "<i8")])


def write(folder: Path, content: bytes) -> Source:
    (folder / "file").write_bytes(content)
    return LocalSource(folder)


@given(st.lists(st.tuples(CELLS, CELLS), min_size=1, max_size=20), st.integers(16, 400), st.sampled_from(["\n", "\r\n", "\r"]))
def test_the_head_of_a_csv_file_has_its_first_rows_and_no_part_of_another(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, str]], n_bytes: int, end: str
) -> None:
    text = io.StringIO()
    csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator=end).writerows([("a", "b"), *rows])
    content = text.getvalue().encode()
    source = write(tmp_path_factory.mktemp("heads"), content)
    head = head_of(source, CsvFormat(kind="csv"), "file", n_bytes)
    assert content.startswith(head.data.tobytes())
    found = list(csv.reader(io.StringIO(head.data.tobytes().decode(), newline="")))
    assert found == [["a", "b"], *map(list, rows)][: len(found)]
    assert len(found) > 1
    assert len(row_format(CsvFormat(kind="csv")).open(head)) == len(found) - 1


def test_a_head_that_holds_no_row_is_the_whole_file(tmp_path: Path) -> None:
    content = b"a,b\n" + b"x" * 100 + b",1\n2,3\n"
    assert head_of(write(tmp_path, content), CsvFormat(kind="csv"), "file", 50).data.tobytes() == content


def test_the_head_of_json_lines_ends_with_a_line(tmp_path: Path) -> None:
    lines = [json.dumps({"x": i, "text": '"\\n"'}) for i in range(100)]
    head = head_of(write(tmp_path, "\n".join(lines).encode()), JsonlFormat(kind="jsonl"), "file", 300)
    found = head.data.tobytes().decode().splitlines()
    assert 1 < len(found) < 100
    assert found == lines[: len(found)]


def test_the_head_of_a_parquet_file_has_its_first_rows_and_its_types(tmp_path: Path) -> None:
    table = pa.table({"x": np.arange(5_000), "name": [str(i) for i in range(5_000)]})
    pq.write_table(table, tmp_path / "file", row_group_size=1_500)
    head = head_of(LocalSource(tmp_path), ParquetFormat(kind="parquet"), "file")
    assert pq.read_table(pa.BufferReader(head.data.tobytes())).equals(table.slice(0, 1_000))
    damaged = write(tmp_path, b"PAR1 and nothing else")
    assert head_of(damaged, ParquetFormat(kind="parquet"), "file").data.tobytes() == b"PAR1 and nothing else"


def test_the_head_of_fixed_rows_ends_with_a_record_and_a_torn_file_is_read_whole(tmp_path: Path) -> None:
    format = FixedRowsFormat(kind="fixed_rows", dtype=[("x", "<f4"), ("y", "<i8")], header_bytes=3)
    content = b"abc" + np.zeros(2_000, dtype=NUMBERS).tobytes()
    assert len(head_of(write(tmp_path, content), format, "file").data) == 3 + 1_000 * NUMBERS.itemsize
    torn = head_of(write(tmp_path, content[:-1]), format, "file")
    with pytest.raises(DataError, match="truncated"):
        row_format(format).open(torn)


def test_a_remote_file_is_read_as_far_as_its_head(tmp_path: Path) -> None:
    content = b"a,b\n" + b"1,2\n" * 1_000
    write(tmp_path, content)
    remote = RemoteSource(f"file://{tmp_path}", {})
    local = head_of(LocalSource(tmp_path), CsvFormat(kind="csv"), "file", 100)
    assert head_of(remote, CsvFormat(kind="csv"), "file", 100).data.tobytes() == local.data.tobytes() == content[:100]
