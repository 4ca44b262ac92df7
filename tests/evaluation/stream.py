"""A small stream in memory and a model whose outputs depend on everything in its block, bit by bit."""

import numpy as np
import numpy.typing as npt

from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, ordinals_of, positions_of
from modyn_dagster.spec.training import TaskKind


class Stream:
    """Batches of given sizes; labels are position mod 3, targets half of it, times the key in microseconds."""

    def __init__(self, sizes: list[int], kind: TaskKind = "class") -> None:
        self.sizes, self.kind = sizes, kind
        self.reads: list[int] = []

    def read(self, keys: KeyArray) -> Samples:
        self.reads.append(len(keys))
        ordinals, positions = ordinals_of(keys), positions_of(keys)
        assert all(position < self.sizes[ordinal] for ordinal, position in zip(ordinals, positions, strict=True))
        value = np.sin(ordinals * 1000.0 + positions)
        return Samples(
            keys=keys,
            times=(ordinals * 1_000_000 + positions).astype("datetime64[us]"),
            labels=positions % 3 if self.kind == "class" else None,
            targets=positions / 2 if self.kind == "target" else None,
            columns={"value": value},
            blobs=[str(position).encode() for position in positions],
        )


class Entangled:
    """A model that mixes all rows of a block: its bits tell whether two blocks were the same."""

    def __init__(self, n_outputs: int = 3) -> None:
        self.n_outputs, self.seen = n_outputs, 0

    def __call__(self, samples: Samples) -> npt.NDArray[np.float32]:
        self.seen += 1
        assert samples.blobs is not None
        assert [int(blob) for blob in samples.blobs] == positions_of(samples.keys).tolist()
        value = samples.columns["value"]
        mixed = value + np.cumsum(value)[-1] * 1e-3
        outputs = np.empty((len(samples), self.n_outputs), dtype=np.float32)
        outputs[:] = mixed[:, None] * np.arange(1, self.n_outputs + 1)
        return outputs
