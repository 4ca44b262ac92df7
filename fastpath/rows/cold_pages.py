"""Rows of mapped files that may not be in memory: read with many reads under way, before one of them is waited for.

What is missing decides, block of 2 MiB by block:

- Few pages: each is asked for with ``MADV_WILLNEED``, in the order of the file, and mapped with ``MADV_POPULATE_READ`` while
  later ones are being read. The disk sees as long a queue as with io_uring, without a system call per row afterwards.
- Many pages: the mapping gets ``MADV_HUGEPAGE``, and the first touch of the block reads it, and the next, whole. Such pages
  are huge ones (Linux 5.18, on file systems with large folios): a tenth of the processor time of reading small pages, and
  later rows of them miss the TLB less often.
"""

from itertools import count
from resource import RUSAGE_SELF, getrusage
from typing import Final

import numpy as np
import numpy.typing as npt

from fastpath.kernels import _pages

# Measured on a virtio disk (ext4, Linux 6.18) of 137 thousand reads a second and 1.9 GB/s: a read takes 7.3 us, a page more in
# it 2.1 us. So up to 2 pages are read for nothing rather than a read more; and from half a block on (pages between the needed
# ones included), reading the block takes no longer than its parts, at a fraction of the processor time.
_GAP: Final = 2
_DENSE: Final = 256
#: Pages of one read: the kernel cuts longer ones to the read-ahead of the device without a word, which is 32 pages or more.
_MOST: Final = 32

#: Rows of a request of which a page is looked at: a look takes half a microsecond.
_LOOKS: Final = 24
_CLOSER_LOOKS: Final = 1024


#: Requests that are taken for cold after a page fault, where the kernel does not tell what is in memory.
_DOUBTFUL: Final = 8


class _Watch:
    """How close to look at the next request, by what the process met since the last one.

    A request with few missing pages among many passes an ordinary look. Its missing pages are major page faults then, and
    these make the next look a close one. Where looking tells nothing, they are what says that something is missing.
    """

    def __init__(self) -> None:
        self._requests = count()
        self._faults = 0
        self._doubts = _DOUBTFUL

    def next(self) -> tuple[int, int]:
        """Rows to look at, and a seed that chooses them."""
        looks = _CLOSER_LOOKS if self._faulted() else _LOOKS
        return looks, next(self._requests) * _CLOSER_LOOKS

    def doubts(self) -> bool:
        """Whether to take for missing what cannot be looked at."""
        self._doubts = _DOUBTFUL if self._faulted() else max(self._doubts - 1, 0)
        return self._doubts > 0

    def _faulted(self) -> bool:
        before, self._faults = self._faults, getrusage(RUSAGE_SELF).ru_majflt
        return self._faults != before


_watch: Final = _Watch()


def bring_in(
    bases: npt.NDArray[np.uint64],
    sizes: npt.NDArray[np.int64],
    file: npt.NDArray[np.int32],
    offset: npt.NDArray[np.int64],
    length: npt.NDArray[np.int64] | int,
    *,
    told: bool = True,
) -> int:
    """Have the pages of a request in memory, or such that their first touch reads them in large pieces. GIL released.

    When a look at some of the rows finds their pages in memory, nothing more is done, in some ten microseconds. Arrays are
    contiguous; rows that do not lie inside their mapping, and rows of files that are not mapped, are passed over.

    Args:
        bases: ``uint64[n_files]``, addresses of mappings, 0 for a file that is not mapped.
        sizes: ``int64[n_files]``, bytes of each mapping.
        file: ``int32[n]``, the file of each row.
        offset: ``int64[n]``, where it begins there.
        length: ``int64[n]``, or one number if all rows have as many bytes.
        told: whether looking helps, ``residency_is_visible`` of all files. If not, everything counts as missing until
            some requests have passed without a page fault.

    Returns:
        Bytes that were missing and are read; 0 when the pages looked at were in memory.
    """
    if len(file) == 0 or (not told and not _watch.doubts()):
        return 0
    lengths, length = (None, length) if isinstance(length, int) else (length, 0)
    looks, seed = _watch.next()
    return _pages.bring_in(bases, sizes, file, offset, lengths, length, looks, seed, _GAP, _MOST, _DENSE, told)
