"""Methods to read rows of files that are not in the page cache, without fastpath.

Every contender takes ``(paths, file int32[n], offset int64[n], width)`` and returns ``uint8[n, width]``; opening the files
is part of it. ``forget(paths)`` makes files cold.
"""

import ctypes
import errno
import mmap
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.uint8]
Files = npt.NDArray[np.int32]
Offsets = npt.NDArray[np.int64]
Paths = Sequence[Path]

_FORBIDDEN: Final = {errno.ENOSYS, errno.EPERM, errno.EACCES, errno.ENOMEM}

_PATIENCE: Final = 5.0


class Unavailable(Exception):
    """This machine cannot run the contender; the text says why."""


def forget(paths: Paths) -> None:
    """Put the files out of the page cache. Raises RuntimeError if pages stay: somebody has them mapped."""
    for path in paths:
        until = time.monotonic() + _PATIENCE
        while pages := _dropped(path):
            # Pages that are being read stay until they are there.
            if time.monotonic() > until:
                raise RuntimeError(f"{path}: {pages} pages stay in the page cache")
            time.sleep(0.01)


def _dropped(path: Path) -> int:
    descriptor = os.open(path, os.O_RDWR)
    try:
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)
    return cached_pages(path)


def cached_pages(path: Path) -> int:
    """Pages of the file in the page cache."""
    with _mapped([path]) as (array,):
        resident = np.zeros(-(-len(array) // mmap.PAGESIZE), dtype=np.uint8)
        if _libc().mincore(_pointer(array), ctypes.c_size_t(len(array)), _pointer(resident)) != 0:
            raise OSError(ctypes.get_errno(), "mincore", str(path))
        return int(np.count_nonzero(resident & 1))


def whole_read(paths: Paths, file: Files, offset: Offsets, width: int) -> Rows:
    """Read every file that has a row, from its beginning to its end, then gather."""
    wanted = np.unique(file)
    contents = {int(f): np.frombuffer(paths[f].read_bytes(), dtype=np.uint8) for f in wanted}
    return _gathered([contents.get(f) for f in range(len(paths))], file, offset, width)


def mmap_plain(paths: Paths, file: Files, offset: Offsets, width: int) -> Rows:
    """Map the files and gather, the kernel reading around each fault as it pleases."""
    with _mapped(paths) as arrays:
        return _gathered(arrays, file, offset, width)


def mmap_random(paths: Paths, file: Files, offset: Offsets, width: int) -> Rows:
    """The same with ``MADV_RANDOM``: one page per fault."""
    with _mapped(paths, mmap.MADV_RANDOM) as arrays:
        return _gathered(arrays, file, offset, width)


def pread_two_threads(paths: Paths, file: Files, offset: Offsets, width: int) -> Rows:
    """One ``pread`` per row, the first half of the rows in one thread, the second in another."""
    out = np.empty((len(file), width), dtype=np.uint8)
    halves = (slice(0, len(file) // 2), slice(len(file) // 2, None))
    with _descriptors(paths) as descriptors, ThreadPoolExecutor(2) as threads:
        calls = [
            threads.submit(
                _library().pread_rows,
                _pointer(descriptors),
                _pointer(file[half]),
                _pointer(offset[half]),
                ctypes.c_int64(len(file[half])),
                ctypes.c_int64(width),
                _pointer(out[half]),
            )
            for half in halves
        ]
        for call in calls:
            _check(call.result())
    return out


def io_uring_256(paths: Paths, file: Files, offset: Offsets, width: int) -> Rows:
    """One read per row, 256 under way. Raises ``Unavailable`` where the kernel has or allows no io_uring."""
    out = np.empty((len(file), width), dtype=np.uint8)
    with _descriptors(paths) as descriptors:
        failed = _library().uring_rows(
            _pointer(descriptors),
            _pointer(file),
            _pointer(offset),
            ctypes.c_int64(len(file)),
            ctypes.c_int64(width),
            _pointer(out),
            ctypes.c_uint(256),
        )
    if -failed in _FORBIDDEN:
        raise Unavailable(f"io_uring: {os.strerror(-failed)} (see /proc/sys/kernel/io_uring_disabled)")
    _check(failed)
    return out


CONTENDERS: Final[Mapping[str, Callable[[Paths, Files, Offsets, int], Rows]]] = {
    "whole read": whole_read,
    "mmap": mmap_plain,
    "mmap MADV_RANDOM": mmap_random,
    "pread, 2 threads": pread_two_threads,
    "io_uring, 256 in flight": io_uring_256,
}


@contextmanager
def _mapped(paths: Paths, advice: int | None = None) -> Iterator[list[Rows]]:
    maps: list[mmap.mmap] = []
    for path in paths:
        with open(path, "rb") as file:
            maps.append(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        if advice is not None:
            maps[-1].madvise(advice)
    arrays = [np.frombuffer(mapped, dtype=np.uint8) for mapped in maps]
    try:
        yield arrays
    finally:
        # The arrays keep the mappings; with both gone the files are unmapped, and can be made cold again.
        arrays.clear()
        maps.clear()


@contextmanager
def _descriptors(paths: Paths) -> Iterator[npt.NDArray[np.int32]]:
    opened = [os.open(path, os.O_RDONLY) for path in paths]
    try:
        yield np.array(opened, dtype=np.int32)
    finally:
        for descriptor in opened:
            os.close(descriptor)


def _gathered(arrays: Sequence[Rows | None], file: Files, offset: Offsets, width: int) -> Rows:
    out = np.empty((len(file), width), dtype=np.uint8)
    bases = np.array([0 if array is None else array.ctypes.data for array in arrays], dtype=np.uint64)
    _library().gather(
        _pointer(bases), _pointer(file), _pointer(offset), ctypes.c_int64(len(file)), ctypes.c_int64(width), _pointer(out)
    )
    return out


def _pointer(array: npt.NDArray[Any]) -> ctypes.c_void_p:
    if not array.flags.c_contiguous:
        raise ValueError("arrays must be contiguous")
    return ctypes.c_void_p(array.ctypes.data)


def _check(failed: int) -> None:
    if failed:
        raise OSError(-failed, os.strerror(-failed))


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


@cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).with_suffix(".c")
    with tempfile.TemporaryDirectory(prefix="cold-reads-") as folder:
        built = Path(folder) / "cold_reads.so"
        command = [os.environ.get("CC", "cc"), "-O3", "-shared", "-fPIC", "-o", str(built), str(source)]
        try:
            subprocess.run(command, check=True, capture_output=True, text=True)
        except FileNotFoundError as error:
            raise Unavailable(f"no C compiler: {command[0]}") from error
        except subprocess.CalledProcessError as error:
            raise Unavailable(f"{' '.join(command)}: {error.stderr}") from error
        return ctypes.CDLL(str(built))
