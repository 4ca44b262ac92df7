"""Memory in place of a file's parts: Arrow's arrays over it lead to the file as long as that memory is there, and no longer."""

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from fastpath.format.skeleton import Part, Skeleton, open_arrow_file


def is_mapped(address: int) -> bool:
    """Tell whether the process has memory at an address."""
    spans = (line.split()[0].split("-") for line in Path("/proc/self/maps").read_text().splitlines())
    return any(int(first, 16) <= address < int(last, 16) for first, last in spans)


class WatchedParts(dict[int, Part]):
    """Known parts; notes for each one forgotten whether its memory was still there."""

    def __init__(self) -> None:
        super().__init__()
        self.there: list[bool] = []

    def __delitem__(self, address: int) -> None:
        self.there.append(is_mapped(address))
        super().__delitem__(address)


CONTENT = np.arange(1 << 21, dtype=np.uint8)


def skeleton() -> tuple[Skeleton, WatchedParts]:
    made, parts = Skeleton(CONTENT.data, is_stream=True), WatchedParts()
    made.parts = parts
    return made, parts


@pytest.mark.parametrize("held", ["as Arrow's buffer", "as an array over it"])
def test_a_part_is_forgotten_while_its_memory_is_still_there_so_that_no_other_part_has_its_address(held: str) -> None:
    made, parts = skeleton()
    for _ in range(3):
        part: Any = made.read_buffer(500_000)
        if held == "as an array over it":
            part = np.frombuffer(part, dtype=np.uint8)[100:200]
            np.testing.assert_array_equal(made.view(part), CONTENT[made.tell() - 500_000 :][100:200])
        assert len(parts) == 1
        del part
        assert not parts
    assert parts.there == [True] * 3


def test_memory_of_a_part_that_is_gone_is_from_elsewhere() -> None:
    made, _ = skeleton()
    part = np.frombuffer(made.read_buffer(500_000), dtype=np.uint8)
    assert len(made.view(part)) == 500_000
    elsewhere = np.zeros(500_000, dtype=np.uint8)
    del part
    with pytest.raises(ValueError, match="do not lie in the file"):
        made.view(elsewhere)


def test_parts_that_threads_read_and_let_go_at_once_are_each_found_at_their_place(tmp_path: Path) -> None:
    table = pa.table({"value": np.arange(400_000)})
    path = tmp_path / "values.arrow"
    with pa.OSFile(str(path), "wb") as out, pa.ipc.new_file(out, table.schema) as writer:
        writer.write_table(table, max_chunksize=10_000)
    made = Skeleton(np.fromfile(path, dtype=np.uint8).data, is_stream=False)
    owner = type("Owner", (), {})()
    reader, wrong = open_arrow_file(owner, made), list[str]()

    def read(first: int) -> None:
        for i in range(first, first + 400):
            batch = reader.get_batch(i % 40)
            try:
                values = made.view(np.frombuffer(batch.column(0).buffers()[1], dtype=np.int64, count=10_000))
            except ValueError as error:
                wrong.append(str(error))
            else:
                if values[0] != i % 40 * 10_000:
                    wrong.append(f"batch {i % 40} begins with {values[0]}")

    threads = [threading.Thread(target=read, args=(10 * number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
