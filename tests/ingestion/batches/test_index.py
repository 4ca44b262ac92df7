from pathlib import Path

import numpy as np
import pytest

from fastpath.format.index import BatchIndex
from fastpath.format.index_file import Extents, IndexedFile
from modyn_dagster.errors import CorruptFile
from modyn_dagster.ingestion.batches.batch_files import write_index
from modyn_dagster.values.digest import checksum_of

FILES = [IndexedFile("a/b.csv", 100, "c1"), IndexedFile(None, 50, "c2")]


def write(path: Path, n: int = 5) -> str:
    extents = Extents.of(np.zeros(n, np.int32), np.arange(n) * 8, np.full(n, 8))
    return write_index(path, (np.arange(n) * 10).astype("datetime64[us]"), np.arange(n), None, extents, FILES)


def test_an_index_is_written_with_its_folder_and_can_be_opened_with_the_checksum_returned(tmp_path: Path) -> None:
    path = tmp_path / "some" / "i.arrow"
    checksum = write(path)
    assert checksum == checksum_of(path)
    assert BatchIndex.open(path, checksum).files == tuple(FILES)
    assert [file.name for file in path.parent.iterdir()] == ["i.arrow"]


def test_equal_content_gives_equal_bytes_wherever_it_is_written(tmp_path: Path) -> None:
    assert write(tmp_path / "one.arrow") == write(tmp_path / "other" / "two.arrow")
    assert (tmp_path / "one.arrow").read_bytes() == (tmp_path / "other" / "two.arrow").read_bytes()


def test_damage_is_an_error_of_this_package(tmp_path: Path) -> None:
    write(tmp_path / "i.arrow")
    with pytest.raises(CorruptFile, match="expected checksum"):
        BatchIndex.open(tmp_path / "i.arrow", "0" * 32)
