"""The one sequence of batches of an epoch, and how consumers share it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

STATE_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Batching:
    """How ``n`` samples are cut into batches: all of ``batch_size``, but the last.

    A short last batch is dropped if asked for, but never when it is the only one.
    """

    n: int
    batch_size: int
    drop_last: bool = False

    def __post_init__(self) -> None:
        if self.batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, not {self.batch_size}")

    def __len__(self) -> int:
        full, rest = divmod(self.n, self.batch_size)
        return full if rest == 0 or (self.drop_last and full) else full + 1

    def bounds(self, number: int) -> tuple[int, int]:
        """The first place of batch ``number`` in the epoch's order, and the one after its last."""
        return number * self.batch_size, min(self.n, (number + 1) * self.batch_size)


@dataclass(frozen=True, slots=True)
class Shard:
    """Consumer ``index`` of ``count``: of the batches from a position on it takes every ``count``-th."""

    index: int
    count: int

    def __post_init__(self) -> None:
        if not 0 <= self.index < self.count:
            raise ValueError(f"shard must be (i, n) with 0 <= i < n, not ({self.index}, {self.count})")

    def numbers(self, position: int, n_batches: int) -> range:
        """The batches that this consumer takes when all begin at ``position``."""
        return range(position + self.index, n_batches, self.count)

    def after(self, number: int, n_batches: int) -> int:
        """The position of all consumers once each has taken as many batches as this one, whose last was ``number``."""
        return min(number - self.index + self.count, n_batches)


def resumed(state: Mapping[str, Any], own: Mapping[str, Any], n_batches: int) -> tuple[int, int]:
    """Epoch and position of a state, which must otherwise equal ``own``; ``ValueError`` names the field that does not."""
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
