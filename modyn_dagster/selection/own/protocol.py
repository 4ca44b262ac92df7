"""Protocol of a strategy of a user's own: the samples of a window in, the chosen ones out."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray
from modyn_dagster.reproducibility.randomness import hash_keys, seed_for
from modyn_dagster.selection.quotas import Int64Array

#: A hash keeps so many bits as a random number, all that a double holds.
_BITS: Final = 53


@dataclass(frozen=True, slots=True, eq=False)
class WindowSamples:
    """Samples that a trigger may choose from, in the order of their arrival. All arrays are read-only.

    Attributes:
        keys: ``uint64[n]``, ascending. They are names: their values depend on how the stream was cut into batches.
        labels: class indices known at the trigger, ``int64[n]``; -1 where the dataset has no classes.
        stretches: number of the stretch between two trained triggers that a sample belongs to, ``int64[n]``.
        size: number of samples to choose, at most.
        trigger: ordinal of the trigger, from 0.
        seed: of this selection; another one at every trigger.
        uses: number of the run's earlier training sets that hold a sample, ``int64[n]``; None without ``usage: true``.
        attributes: by name, ``object[n]`` of texts; None where a sample has none.
        identities: numbers that random numbers belong to, ``uint64[n]``; default: the keys.
    """

    keys: KeyArray
    labels: Int64Array
    stretches: Int64Array
    size: int
    trigger: int
    seed: int
    uses: Int64Array | None = None
    attributes: Mapping[str, npt.NDArray[np.object_]] = field(default_factory=dict)
    identities: KeyArray | None = None

    def __post_init__(self) -> None:
        for column in (self.keys, self.labels, self.stretches, self.uses, *self.attributes.values(), self.identities):
            if column is not None:
                column.flags.writeable = False

    def __len__(self) -> int:
        return len(self.keys)

    def random(self, name: str = "") -> npt.NDArray[np.float64]:
        """Draw a number from [0, 1) for each sample, ``float64[n]``; another ``name`` gives independent ones.

        A number belongs to seed and sample: it is the same whatever else is in the window.
        """
        hashes = hash_keys(self.keys if self.identities is None else self.identities, seed_for(self.seed, name))
        numbers: npt.NDArray[np.float64] = (hashes >> np.uint64(64 - _BITS)).astype(np.float64) / 2**_BITS
        return numbers


@dataclass(frozen=True, slots=True, eq=False)
class Chosen:
    """Samples that a strategy chooses, in any order, each once.

    Without ``weights`` a sample weighs the inverse of its chance, and without chances window / set. Without ``chances`` the
    training set is recorded as uncertified: nobody can tell if its weighted sums are those of the window.

    Attributes:
        keys: of the chosen samples, ``uint64[m]``, such as ``samples.keys[mask]``.
        weights: ``float[m]``, finite and positive.
        chances: probabilities with which the samples were to be chosen, ``float[m]``, above 0 and at most 1.
    """

    keys: npt.NDArray[Any]
    weights: npt.NDArray[Any] | None = None
    chances: npt.NDArray[Any] | None = None


class SelectionStrategy(Protocol):
    """Pure function of the samples of a window: it keeps no state, and draws random numbers from ``WindowSamples.random``."""

    def __call__(self, samples: WindowSamples, /) -> Chosen:
        """Choose at most ``samples.size`` of the samples."""
