from pathlib import Path

import numpy as np
import pytest

from fastpath.errors import CorruptFile
from fastpath.format.mapped_files import resident_copy


@pytest.mark.parametrize("size", [0, 1, 4096, 5_000_001])
def test_a_copy_has_the_bytes_of_the_file(tmp_path: Path, size: int) -> None:
    content = np.random.default_rng(size).integers(0, 256, size, dtype=np.uint8)
    path = tmp_path / "rows"
    content.tofile(path)
    copy = resident_copy(path, size)
    np.testing.assert_array_equal(copy, content)
    assert copy.dtype == np.uint8 and copy.shape == (size,)


def test_a_copy_does_not_change_with_the_file_and_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"before")
    copy = resident_copy(path, 6)
    path.write_bytes(b"after!")
    assert copy.tobytes() == b"before"
    with pytest.raises(ValueError, match="read-only"):
        copy[0] = 1


def test_a_copy_is_memory_of_the_process_and_asks_for_huge_pages(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(bytes(8 << 20))
    copy = resident_copy(path, 8 << 20)
    mapping = next(block for block in mappings() if block[0] <= copy.ctypes.data < block[1])
    assert mapping[2] == "" and "hg" in mapping[3]


def mappings() -> list[tuple[int, int, str, list[str]]]:
    """(start, end, file, flags) of each mapping of this process."""
    found, start, end, name = [], 0, 0, ""
    for line in Path("/proc/self/smaps").read_text().splitlines():
        first, *rest = line.split()
        if first == "VmFlags:":
            found.append((start, end, name, rest))
        elif not first.endswith(":"):
            start, end = (int(part, 16) for part in first.split("-"))
            name = " ".join(rest[4:])
    return found


def test_a_file_that_ends_before_its_size_is_refused() -> None:
    # The size of such a file is that of a page, whatever is in it: like a file cut short after it was opened.
    path = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    with pytest.raises(CorruptFile, match=f"expected {path.stat().st_size} bytes, found an earlier end"):
        resident_copy(path, path.stat().st_size)
