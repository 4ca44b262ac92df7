"""Cold pages: rows of mapped files that may not be in memory are requested with many reads in flight.

The number of missing pages decides, block of 2 MiB by block:

- Few pages: each is requested with ``MADV_WILLNEED``, in the order of the file, and mapped with ``MADV_POPULATE_READ`` while
  later ones are being read. The disk sees as long a queue as with io_uring, without a system call per row afterwards.
- Many pages: the mapping gets ``MADV_HUGEPAGE``, and the first touch of the block reads it, and the next, whole. Such pages
  are huge ones (Linux 5.18, on file systems with large folios): they take a tenth of the processor time of small pages, and
  later rows in them miss the TLB less often.
"""

from itertools import count
from resource import RUSAGE_SELF, getrusage
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.kernels import _pages

# Measured on a virtio disk (ext4, Linux 6.18) of 137 thousand reads a second and 1.9 GB/s: a read takes 7.3 us, each further page
# 2.1 us. So reading up to 2 unneeded pages is cheaper than another read; and from half a block on (pages between the needed ones
# included), reading the block takes no longer than its parts, at a fraction of the processor time.
_MAX_GAP: Final = 2
_DENSE: Final = 256
#: Pages of one read: the kernel silently cuts longer reads to the read-ahead of the device, which is 32 pages or more.
_MAX_READ: Final = 32

#: Rows of a request of which a page is checked: a check takes half a microsecond.
_SAMPLED_ROWS: Final = 24
_SAMPLED_ROWS_AFTER_FAULT: Final = 1024


#: Requests that count as cold after a page fault, where the kernel does not show which pages are in memory.
_SUSPECT_REQUESTS: Final = 8


class _PageFaultMonitor:
    """Size of the sample for the next request, by the page faults of the process since the last one.

    A small sample may overlook few missing pages among many. They become major page faults, after which the next sample is
    large. Where the kernel shows no residency, page faults are the only sign of missing pages.
    """

    def __init__(self) -> None:
        self._requests = count()
        self._faults = 0
        self._suspect = _SUSPECT_REQUESTS

    def next_sample(self) -> tuple[int, int]:
        """Number of rows to check, and a seed that chooses them."""
        rows = _SAMPLED_ROWS_AFTER_FAULT if self._faulted() else _SAMPLED_ROWS
        return rows, next(self._requests) * _SAMPLED_ROWS_AFTER_FAULT

    def is_suspect(self) -> bool:
        """True if pages that cannot be checked should count as missing."""
        self._suspect = _SUSPECT_REQUESTS if self._faulted() else max(self._suspect - 1, 0)
        return self._suspect > 0

    def _faulted(self) -> bool:
        before, self._faults = self._faults, getrusage(RUSAGE_SELF).ru_majflt
        return self._faults != before


_page_fault_monitor: Final = _PageFaultMonitor()


def bring_in(
    bases: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64] | int,
    *,
    residency_visible: bool = True,
) -> int:
    """Bring the pages of a request into memory, or have their first touch read them in large pieces. GIL released.

    If the pages of a sample of the rows are in memory, the function returns after some ten microseconds. Arrays are contiguous;
    rows that do not lie inside their mapping, and rows of files that are not mapped, are skipped.

    Args:
        bases: ``uint64[n_files]``, addresses of mappings, 0 for a file that is not mapped.
        sizes: ``int64[n_files]``, bytes of each mapping.
        file: ``int32[n]``, the file of each row.
        offset: ``int64[n]``, first byte of each row in its file.
        length: ``int64[n]``, or one number if all rows have as many bytes.
        residency_visible: whether ``residency_is_visible`` for all files. If not, all pages count as missing until some
            requests have passed without a page fault.

    Returns:
        Bytes that were missing and are read; 0 if the sampled pages were in memory.
    """
    if len(file) == 0 or (not residency_visible and not _page_fault_monitor.is_suspect()):
        return 0
    lengths, length = (None, length) if isinstance(length, int) else (length, 0)
    rows, seed = _page_fault_monitor.next_sample()
    pages = rows, seed, _MAX_GAP, _MAX_READ, _DENSE
    return _pages.bring_in(bases, sizes, file, offset, lengths, length, *pages, residency_visible)
