"""Choice of a user's strategy or statement, held against the laws of strategies, as partitions of a training set."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final, NoReturn

import numpy as np
import numpy.typing as npt

from fastpath import Partition
from modyn_dagster.data.windows.statements.allowed import StatementOrigin
from modyn_dagster.errors import ChoiceRefused
from modyn_dagster.keys import KeyArray
from modyn_dagster.selection.own.protocol import Chosen
from modyn_dagster.selection.partitions import ProbabilityPartition, part_of

#: Laws that a choice obeys.
SHAPES: Final = "a choice has one key, and at most one weight and one chance, per sample"
ONCE: Final = "a sample is chosen at most once"
INSIDE: Final = "chosen samples are in the window"
AT_MOST: Final = "a choice has at most the size asked for"
WEIGHTS: Final = "weights are finite and positive"
CHANCES: Final = "chances are above 0 and at most 1"


class Origin(StatementOrigin):
    """Place of a user's code in a pipeline, for errors; its field is one such as ``selection.strategy.factory``."""

    def broken(self, law: str, what: str) -> NoReturn:
        """Raise ``ChoiceRefused``."""
        raise ChoiceRefused(self.source, self.field, law, f"{self.path} {what}")


class OwnSelection:
    """One trigger's selection by a user's code; what ``Selection`` is for other strategies.

    Args:
        whole: the chosen samples, keys ascending.
        n_pool: samples of the window.
        partition_size: keys per partition.
        certified: the strategy tells inclusion probabilities.
    """

    def __init__(self, whole: Partition, *, n_pool: int, partition_size: int, certified: bool) -> None:
        self.n_pool, self.certified = n_pool, certified
        self._whole, self._partition_size = whole, partition_size

    def __iter__(self) -> Iterator[Partition]:
        """Partitions of ``partition_size`` keys in key order, the last maybe shorter."""
        for start in range(0, len(self._whole.keys), self._partition_size):
            yield part_of(self._whole, start, start + self._partition_size)


def checked(chosen: object, pool: Callable[[], Iterable[KeyArray]], size: int, origin: Origin) -> Chosen:
    """Return a choice with ascending ``uint64`` keys and ``float64`` weights and chances.

    Args:
        chosen: result of a user's code.
        pool: starts a pass over the keys of the window, ascending.
        size: number of samples asked for.
        origin: of the code.

    Raises:
        ChoiceRefused: it breaks a law; the message names the law and the first key that does.
    """
    if not isinstance(chosen, Chosen):
        origin.broken(SHAPES, f"must return a Chosen of modyn_dagster.selection.own, not {type(chosen).__name__}")
    keys = _keys(chosen.keys, origin)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    if len(repeated := keys[1:][keys[1:] == keys[:-1]]):
        origin.broken(ONCE, f"chose the sample with key {repeated[0]} more than once")
    if len(outside := _outside(keys, pool())):
        origin.broken(INSIDE, f"chose key {outside[0]}, which is not in the window")
    if len(keys) > size:
        origin.broken(AT_MOST, f"chose {len(keys)} samples of at most {size}")
    weights, chances = (
        None if column is None else _column(name, column, len(keys), origin)[order]
        for name, column in (("weights", chosen.weights), ("chances", chosen.chances))
    )
    # Training sets hold 32 bits, in which a weight may be too large or vanish.
    if weights is not None:
        with np.errstate(over="ignore", under="ignore"):
            stored = weights.astype(np.float32)
        _require(np.isfinite(stored) & (stored > 0), keys, weights, "weight", WEIGHTS, origin)
    if chances is not None:
        _require((chances > 0) & (chances <= 1), keys, chances, "chance", CHANCES, origin)
    return Chosen(keys, weights, chances)


def partition_of(chosen: Chosen, n_pool: int) -> Partition:
    """Partition of a checked choice: weights are those chosen, else the inverses of the chances, else window / set."""
    keys = np.asarray(chosen.keys, np.uint64)
    equal = np.full(len(keys), n_pool / max(1, len(keys)), np.float32)
    if chosen.chances is None:
        return Partition(keys, equal if chosen.weights is None else chosen.weights.astype(np.float32))
    if chosen.weights is not None:
        return ProbabilityPartition(keys, chosen.weights.astype(np.float32), chosen.chances)
    return Partition(keys, 1 / ProbabilityPartition(keys, equal, chosen.chances).chances)


def _keys(found: object, origin: Origin) -> KeyArray:
    keys = np.asarray(found)
    if keys.ndim != 1 or (len(keys) and keys.dtype.kind not in "iu"):
        origin.broken(SHAPES, f"must choose keys as an array uint64[m], not {keys.dtype}{list(keys.shape)}")
    if len(keys) and keys.dtype.kind == "i" and int(keys.min()) < 0:
        origin.broken(INSIDE, f"chose key {keys.min()}, which is not in the window")
    return keys.astype(np.uint64)


def _column(name: str, found: object, n: int, origin: Origin) -> npt.NDArray[np.float64]:
    column = np.asarray(found)
    if column.shape != (n,) or (n and column.dtype.kind not in "fiu"):
        origin.broken(SHAPES, f"chose {n} keys and {name} {column.dtype}{list(column.shape)}")
    return column.astype(np.float64)


def _outside(keys: KeyArray, pool: Iterable[KeyArray]) -> KeyArray:
    """Ascending keys that are in no chunk of an ascending pool."""
    inside = np.zeros(len(keys), dtype=bool)
    for chunk in pool:
        if len(chunk):
            first, stop = np.searchsorted(keys, chunk[0]), np.searchsorted(keys, chunk[-1], side="right")
            inside[first:stop] = chunk[np.searchsorted(chunk, keys[first:stop])] == keys[first:stop]
    return keys[~inside]


def _require(
    possible: npt.NDArray[np.bool_], keys: KeyArray, values: npt.NDArray[Any], name: str, law: str, origin: Origin
) -> None:
    if len(at := np.flatnonzero(~possible)):
        origin.broken(law, f"gave the sample with key {keys[at[0]]} the {name} {values[at[0]]}")
