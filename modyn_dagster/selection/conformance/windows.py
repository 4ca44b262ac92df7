"""Windows on which a strategy is tried: generated samples, cut into batches in several ways."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.own.protocol import WindowSamples
from modyn_dagster.selection.quotas import Int64Array

#: Share of a window that is asked for, where the sort of the window does not say otherwise.
_SHARE = 0.3


@dataclass(frozen=True, slots=True)
class GeneratedWindow:
    """Samples of a trial, by number from 0, before they are cut into batches.

    Attributes:
        name: for errors.
        labels: class indices, ``int64[n]``.
        stretches: ``int64[n]``, ascending.
        uses: ``int64[n]``.
        attributes: texts by name.
        size: number to choose.
        seed: of the selection.
        lengths: of the batches; they add up to n.
    """

    name: str
    labels: Int64Array
    stretches: Int64Array
    uses: Int64Array
    attributes: Mapping[str, Sequence[str | None]]
    size: int
    seed: int
    lengths: Sequence[int]

    def cut(self, lengths: Sequence[int]) -> "GeneratedWindow":
        """Return the same samples in other batches."""
        return replace(self, lengths=tuple(lengths))

    @property
    def keys(self) -> KeyArray:
        """Keys of the samples in these batches."""
        parts = [keys_of(3 + ordinal, np.arange(n)) for ordinal, n in enumerate(self.lengths)]
        return np.concatenate([np.empty(0, np.uint64), *parts])

    def samples(self) -> WindowSamples:
        """Make the window anew, in arrays of its own. Random numbers belong to the numbers of samples, in all batches alike."""
        columns = (self.labels.copy(), self.stretches.copy(), self.size, 2, self.seed, self.uses.copy())
        texts = {name: _objects(values) for name, values in self.attributes.items()}
        return WindowSamples(self.keys, *columns, texts, identities=np.arange(len(self.labels), dtype=np.uint64))


def generated_windows(samples: int, attributes: Mapping[str, Sequence[str | None]], seed: int) -> Iterator[GeneratedWindow]:
    """One window of every sort.

    Args:
        samples: of most windows.
        attributes: values that samples may have, by name.
        seed: another one, other windows.
    """
    sizes = {"everything": 1.0, "one of many": 0.0}
    sorts = ("usual", "one class", "many classes", "no classes", "never used", "one stretch", *sizes, "one sample", "two samples")
    for name in sorts:
        rng = rng_for(seed, "window", name)
        n = {"one sample": 1, "two samples": 2}.get(name, samples)
        n_classes = {"one class": 1, "many classes": n}.get(name, 4)
        # A few classes are far more frequent than the others.
        labels = np.minimum(rng.geometric(0.5, n) - 1, n_classes - 1) if n_classes < n else rng.permutation(n)
        yield GeneratedWindow(
            name,
            np.full(n, -1) if name == "no classes" else labels.astype(np.int64),
            np.zeros(n, np.int64) if name == "one stretch" else np.sort(rng.integers(0, 3, n)),
            np.zeros(n, np.int64) if name == "never used" else rng.integers(0, 3, n),
            {key: [values[i] for i in rng.integers(0, len(values), n)] for key, values in attributes.items()},
            max(1, int(sizes.get(name, _SHARE) * n)),
            int(rng.integers(2**32)),
            other_batches(n, rng),
        )


def other_batches(samples: int, rng: np.random.Generator) -> list[int]:
    """Lengths of up to six batches that add up to ``samples``, some of them empty."""
    return [int(n) for n in np.diff([0, *np.sort(rng.integers(0, samples + 1, 5)), samples])]


def _objects(values: Sequence[str | None]) -> npt.NDArray[np.object_]:
    texts = np.empty(len(values), object)
    texts[:] = values
    return texts
