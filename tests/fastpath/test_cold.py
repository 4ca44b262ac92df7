import ctypes
import mmap
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath.format.file_table import residency_is_visible
from fastpath.rows.cold_pages import bring_in

PAGE = mmap.PAGESIZE
GAP, BLOCK, DENSE = 2, 512, 256

LIBC = ctypes.CDLL(None, use_errno=True)


class ColdFiles:
    """Files of random bytes, mapped; ``forget`` puts them out of the page cache and maps them again."""

    def __init__(self, folder: Path, sizes: list[int]) -> None:
        rng = np.random.default_rng(len(sizes))
        self.paths = [folder / str(i) for i in range(len(sizes))]
        self.contents = [rng.integers(0, 256, size, dtype=np.uint8) for size in sizes]
        for path, content in zip(self.paths, self.contents):
            content.tofile(path)
        self.sizes = np.array(sizes, dtype=np.int64)
        self.forget()

    def forget(self) -> None:
        self.mapped: list[npt.NDArray[np.uint8]] = []
        for path in self.paths:
            forgotten(path)
        for path in self.paths:
            with open(path, "rb") as file:
                self.mapped.append(np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), dtype=np.uint8))
        self.bases = np.array([array.ctypes.data for array in self.mapped], dtype=np.uint64)

    def in_memory(self, f: int) -> npt.NDArray[np.bool_]:
        resident = np.zeros(-(-len(self.mapped[f]) // PAGE), dtype=np.uint8)
        start, size = ctypes.c_void_p(self.mapped[f].ctypes.data), ctypes.c_size_t(len(self.mapped[f]))
        assert LIBC.mincore(start, size, ctypes.c_void_p(resident.ctypes.data)) == 0
        return (resident & 1).astype(bool)

    def bring_in(self, file: Any, offset: Any, length: Any) -> int:
        lengths = length if isinstance(length, int) else np.array(length, dtype=np.int64)
        return bring_in(self.bases, self.sizes, np.array(file, np.int32), np.array(offset, np.int64), lengths)


def forgotten(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR)
    os.fdatasync(descriptor)
    for _ in range(500):  # pages that are being read stay until they are there
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        if not cached(descriptor):
            break
        time.sleep(0.01)
    else:
        pytest.skip(f"{path} cannot be put out of memory: its file system has no disk")
    os.close(descriptor)


def cached(descriptor: int) -> bool:
    with mmap.mmap(descriptor, 0, access=mmap.ACCESS_READ) as mapped:
        resident = np.zeros(-(-len(mapped) // PAGE), dtype=np.uint8)
        array = np.frombuffer(mapped, dtype=np.uint8)
        LIBC.mincore(ctypes.c_void_p(array.ctypes.data), ctypes.c_size_t(len(array)), ctypes.c_void_p(resident.ctypes.data))
        del array
        return bool((resident & 1).any())


def needed(files: ColdFiles, rows: list[tuple[int, int, int]], f: int) -> list[int]:
    """Pages of file f that must be in memory, and those between them that are read with them; by brute force."""
    pages = {
        page
        for file, offset, length in rows
        if file == f and length > 0
        for page in range(offset // PAGE, (offset + length - 1) // PAGE + 1)
    }
    for page in sorted(pages):
        later = [p for p in pages if page < p <= page + GAP + 1]
        pages.update(range(page, max(later, default=page)))
    return sorted(pages)


@pytest.fixture(scope="module")
def cold_files(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[], ColdFiles]]:
    files = ColdFiles(tmp_path_factory.mktemp("cold"), [5 * BLOCK * PAGE + 77, 1, 40 * PAGE, 3 * PAGE - 1])

    def again() -> ColdFiles:
        files.forget()
        return files

    yield again
    files.mapped = []


@st.composite
def rows_of(draw: st.DrawFn, sizes: tuple[int, ...]) -> list[tuple[int, int, int]]:
    rows = []
    for _ in range(draw(st.integers(1, 40))):
        file = draw(st.integers(0, len(sizes) - 1))
        offset = draw(st.integers(0, sizes[file]))
        rows.append((file, offset, min(draw(st.sampled_from([0, 1, 160, PAGE, 5 * PAGE + 3, 700 * PAGE])), sizes[file] - offset)))
    return rows


@given(rows=rows_of((5 * BLOCK * PAGE + 77, 1, 40 * PAGE, 3 * PAGE - 1)), warm=st.lists(st.integers(0, 39)))
def test_what_is_read_is_what_is_needed_and_missing(
    cold_files: Callable[[], ColdFiles], rows: list[tuple[int, int, int]], warm: list[int]
) -> None:
    files = cold_files()
    if warm:
        files.bring_in([2] * len(warm), [page * PAGE for page in warm], 1)
    before = [files.in_memory(f) for f in range(len(files.paths))]
    pages = [needed(files, rows, f) for f in range(len(files.paths))]
    file, offset, length = zip(*rows)
    brought = files.bring_in(file, offset, length)
    missing = sum(int(np.count_nonzero(~before[f][pages[f]])) for f in range(len(pages)) if pages[f])
    # Of rows of many pages only one is looked at: what is missing elsewhere may be left to the faults.
    assert brought == missing * PAGE or (brought == 0 and any(before[f][pages[f]].any() for f in range(len(pages)) if pages[f]))
    if brought:
        assert_in_memory_or_dense(files, pages)
    for f, start, size in rows:
        np.testing.assert_array_equal(files.mapped[f][start : start + size], files.contents[f][start : start + size])


def assert_in_memory_or_dense(files: ColdFiles, pages: list[list[int]]) -> None:
    for f, wanted in enumerate(pages):
        resident = files.in_memory(f)
        first = int(files.bases[f]) // PAGE
        for number in {(first + page) // BLOCK for page in wanted}:
            block = [page for page in wanted if (first + page) // BLOCK == number]
            assert len(block) >= DENSE or resident[block].all()


def test_scattered_rows_are_there_and_little_else_is(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    pages = np.arange(0, 5 * BLOCK, 10)
    assert files.bring_in(np.zeros(len(pages)), pages * PAGE + 100, 160) == len(pages) * PAGE
    assert np.flatnonzero(files.in_memory(0)).tolist() == pages.tolist()


def test_a_block_of_many_missing_pages_is_read_at_one_touch(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    pages = np.arange(0, 5 * BLOCK, 2)
    assert files.bring_in(np.zeros(len(pages)), pages * PAGE, 160) == (5 * BLOCK - 1) * PAGE
    touched = int(files.mapped[0][2 * BLOCK * PAGE])
    assert touched == files.contents[0][2 * BLOCK * PAGE]
    first = int(files.bases[0]) // PAGE
    inside = (np.arange(5 * BLOCK) + first) // BLOCK == (2 * BLOCK + first) // BLOCK
    assert files.in_memory(0)[: 5 * BLOCK][inside].all()


def test_what_is_in_memory_is_not_read_again(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    rows = ([0, 0, 2], [0, 800 * PAGE, 39 * PAGE], 1)
    assert files.bring_in(*rows) == 3 * PAGE
    assert files.bring_in(*rows) == 0
    assert files.bring_in([], [], 1) == 0


def test_rows_of_unmapped_files_and_rows_outside_their_mapping_are_passed_over(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    files.bases[1] = 0
    assert files.bring_in([1, 3, 0], [0, 0, 9], [1, 1, 0]) == PAGE
    outside = [(2, -1, 5), (2, 40 * PAGE, 1), (2, 0, 2**62), (2, 2**62, 2**62), (2, PAGE, -3)]
    for row in outside:
        file, offset, length = zip((0, 900 * PAGE, 1), row)
        files.bring_in(file, offset, length)
    assert not files.in_memory(2).any()


def test_memory_of_no_file_is_warm() -> None:
    memory = np.ones(10 * PAGE, dtype=np.uint8)
    bases, sizes = np.array([memory.ctypes.data], np.uint64), np.array([len(memory)], np.int64)
    assert bring_in(bases, sizes, np.zeros(9, np.int32), np.arange(9) * PAGE, PAGE) == 0


def test_page_faults_make_the_next_look_a_close_one(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    missing = np.arange(500, 504)
    there = np.setdiff1d(np.arange(1000), missing)
    for part in np.array_split(there, 10):
        files.bring_in(np.zeros(len(part)), part * PAGE, 160)
    assert np.flatnonzero(files.in_memory(0)).tolist() == there.tolist()
    start, size = ctypes.c_void_p(files.mapped[0].ctypes.data), ctypes.c_size_t(len(files.mapped[0]))
    assert LIBC.madvise(start, size, mmap.MADV_RANDOM) == 0  # one page per fault
    rows = (np.zeros(1000), np.arange(1000) * PAGE, 160)
    files.bring_in(*rows)
    assert files.mapped[0][501 * PAGE] == files.contents[0][501 * PAGE]
    files.bring_in(*rows)
    assert files.in_memory(0)[:1000].all()


def test_what_cannot_be_looked_at_is_read_until_requests_pass_without_page_faults(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    rows = (np.zeros(3, np.int32), np.array([0, 10, 20]) * PAGE, np.full(3, 160))
    brought = [bring_in(files.bases, files.sizes, *rows, residency_visible=False) for _ in range(50)]
    assert brought[0] == 3 * PAGE and brought[-1] == 0 and set(brought) == {0, 3 * PAGE}
    assert files.in_memory(0)[[0, 10, 20]].all()
    files.forget()
    before = major_faults()
    assert files.mapped[0][0] == files.contents[0][0]
    assert major_faults() > before
    assert bring_in(files.bases, files.sizes, *rows, residency_visible=False) == 3 * PAGE


def major_faults() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_majflt


@pytest.mark.process
def test_owners_and_writers_are_told_what_is_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "rows"
    path.write_bytes(b"x")
    assert residency_is_visible(path)
    assert residency_is_visible("/etc/passwd") == (os.geteuid() == 0)
    if os.geteuid() == 0:
        assert as_nobody(lambda: residency_is_visible("/etc/passwd")) is False


def as_nobody(ask: Callable[[], bool]) -> bool:
    child = os.fork()
    if child == 0:
        os.setuid(65534)
        os._exit(int(ask()))
    return bool(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))


def test_threads_may_bring_in_the_same_rows(cold_files: Callable[[], ColdFiles]) -> None:
    files = cold_files()
    pages = np.random.default_rng(0).permutation(5 * BLOCK)[:300]
    threads = [threading.Thread(target=files.bring_in, args=(np.zeros(300), pages * PAGE, 160)) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert files.in_memory(0)[pages].all()
