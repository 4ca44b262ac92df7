"""Order of an epoch: a permutation computed slice by slice, cut into batches that consumers share."""

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final, Literal

import numpy as np

from fastpath.array_types import Int64Array
from fastpath.kernels._order import permute, permute_blocks

#: No shuffling, shuffling of the whole set, or shuffling of blocks and inside each block.
Shuffle = bool | Literal["blocks"]

#: Positions of one block in the shuffling of blocks.
BLOCK_SIZE: Final = 65_536
_MAX_LENGTH: Final = 2**62


class Order:
    """Permutation of ``range(n)`` that depends on seed and epoch, and is never materialised as a whole.

    The permutation is a bijection of the next power of two by rounds that can be undone (an odd factor, a term, and high bits
    folded into low ones, as in the finaliser of SplitMix64: Steele, Lea and Flood, OOPSLA 2014), applied again to values outside
    the range (cycle walking: Black and Rogaway, CT-RSA 2002). A slice costs its own length, wherever it lies.

    Args:
        n: number of positions.
        shuffle: False keeps the positions. True permutes all of them. ``"blocks"`` permutes blocks of neighbours and the
            positions inside each, so that a batch needs few partitions; the last block may be shorter and lands anywhere, too.
        block_size: positions of a block.
        seed: seed of the permutation.
        epoch: number of the epoch; each has another permutation.

    >>> order = Order(10, shuffle=True, seed=3, epoch=0)
    >>> sorted(order.positions(0, 10).tolist()) == list(range(10))
    True
    >>> bool((order.positions(4, 7) == order.positions(0, 10)[4:7]).all())
    True
    """

    def __init__(self, n: int, *, shuffle: Shuffle, block_size: int = BLOCK_SIZE, seed: int, epoch: int) -> None:
        if not 0 <= n <= _MAX_LENGTH:
            raise ValueError(f"n must lie in 0..2**62, not {n}")
        if block_size < 1:
            raise ValueError(f"block_size must be at least 1, not {block_size}")
        if epoch < 0:
            raise ValueError(f"epoch must be at least 0, not {epoch}")
        check_shuffle(shuffle)
        self.n, self.shuffle, self.block_size, self.seed, self.epoch = n, shuffle, block_size, seed, epoch
        self._key = _key_of(seed, epoch)

    def __len__(self) -> int:
        return self.n

    def __repr__(self) -> str:
        return f"Order({self.n}, shuffle={self.shuffle!r}, block_size={self.block_size}, seed={self.seed}, epoch={self.epoch})"

    def positions(self, start: int, stop: int, out: Int64Array | None = None) -> Int64Array:
        """Positions at places ``start`` to ``stop`` of the epoch, ``int64[stop - start]``.

        ``out`` is an array for the result: contiguous, of that length. Raises ``ValueError`` for a slice outside ``0..n``.
        """
        if not 0 <= start <= stop <= self.n:
            raise ValueError(f"the slice {start}:{stop} does not lie inside an order of {self.n} positions")
        if out is None:
            out = np.empty(stop - start, dtype=np.int64)
        elif out.shape != (stop - start,) or out.dtype != np.int64 or not out.flags.c_contiguous:
            raise ValueError(f"out must be a contiguous int64[{stop - start}], not {out.dtype}{list(out.shape)}")
        if self.shuffle == "blocks":
            # Bounded by n: the kernel multiplies by the block size.
            permute_blocks(self._key, self.n, min(self.block_size, max(self.n, 1)), start, stop, out)
        elif self.shuffle:
            permute(self._key, self.n, start, stop, out)
        else:
            out[:] = np.arange(start, stop)
        return out


def check_shuffle(shuffle: object) -> None:
    """Raise ``ValueError`` for anything but a kind of shuffling."""
    if not isinstance(shuffle, bool) and shuffle != "blocks":
        raise ValueError(f'shuffle must be False, True or "blocks", not {shuffle!r}')


def _key_of(seed: int, epoch: int) -> int:
    # A hash, so that neighbouring seeds and epochs give unrelated permutations.
    return int.from_bytes(hashlib.blake2b(f"{seed}:{epoch}".encode(), digest_size=8).digest(), "little")


STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Batching:
    """Division of ``n`` samples into batches of ``batch_size``, of which the last may be shorter.

    A short last batch can be dropped, but never when it is the only one.

    >>> batching = Batching(10, 4)
    >>> len(batching), batching.bounds(2)
    (3, (8, 10))

    ``part`` is (i, n) for the i-th of n readers of every batch: each takes neighbouring places, their numbers differ by at most
    one, and a reader whose part is empty takes the first place of the batch all the same.

    >>> [Batching(10, 4, part=(i, 3)).part_bounds(2) for i in range(3)], part_sizes(2, 3)
    ([(8, 9), (8, 9), (9, 10)], [0, 1, 1])
    """

    n: int
    batch_size: int
    drop_last: bool = False
    part: tuple[int, int] = (0, 1)

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")
        if not 0 <= self.part[0] < self.part[1]:
            raise ValueError(f"part must be (i, n) with 0 <= i < n, not {self.part}")

    def __len__(self) -> int:
        full, rest = divmod(self.n, self.batch_size)
        return full if rest == 0 or (self.drop_last and full) else full + 1

    def bounds(self, number: int) -> tuple[int, int]:
        """First place of batch ``number`` in the epoch's order, and the place behind its last."""
        return number * self.batch_size, min(self.n, (number + 1) * self.batch_size)

    def part_bounds(self, number: int) -> tuple[int, int]:
        """First place and place behind the last of this reader's part of batch ``number``; never empty."""
        start, stop = self.bounds(number)
        index, count = self.part
        first, last = (start + i * (stop - start) // count for i in (index, index + 1))
        return (first, last) if first < last else (start, start + 1)


def part_sizes(n: int, count: int) -> list[int]:
    """Sizes of the parts of a batch of ``n`` samples."""
    ends = [i * n // count for i in range(count + 1)]
    return [last - first for first, last in pairwise(ends)]


@dataclass(frozen=True, slots=True)
class Shard:
    """Consumer ``index`` of ``count``, which takes every ``count``-th batch from a position on."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"shard must be (i, n) with 0 <= i < n, not ({self.index}, {self.count})")

    def numbers(self, position: int, n_batches: int) -> range:
        """Batches of this consumer when all consumers begin at ``position``."""
        return range(position + self.index, n_batches, self.count)

    def after(self, number: int, n_batches: int) -> int:
        """Position of all consumers once each has taken as many batches as this one, whose last was ``number``."""
        return min(number - self.index + self.count, n_batches)


def parse_state(state: Mapping[str, Any], own: Mapping[str, Any], n_batches: int) -> tuple[int, int]:
    """Epoch and position of a state; ``ValueError`` names the first other field that differs from ``own``."""
    if state.keys() != own.keys():
        raise ValueError(f"a stream's state has the fields {', '.join(own)}; this one has {', '.join(map(str, state))}")
    for field in own.keys() - {"epoch", "position"}:
        if type(state[field]) is not type(own[field]) or state[field] != own[field]:
            raise ValueError(f"{field}: the state is of a stream with {state[field]!r}, this one has {own[field]!r}")
    epoch, position = (_count(state, field) for field in ("epoch", "position"))
    if position > n_batches:
        raise ValueError(f"position: must not exceed {n_batches}, the batches of an epoch (found {position})")
    return epoch, position


def _count(state: Mapping[str, Any], field: str) -> int:
    value = state[field]
    if type(value) is not int or value < 0:
        raise ValueError(f"{field}: must be a whole number from 0 on (found {value!r})")
    return value
