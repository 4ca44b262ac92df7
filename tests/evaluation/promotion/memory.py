"""A stream of labelled samples and models in memory, and a gate's evidence of it, written down from the definitions alone."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.promotion.evidence import Outcomes, Pairs
from modyn_dagster.keys import key_of

#: Stream time between two batches: a day. The samples of a batch share its moment.
DAY = 86_400_000_000
NEVER = 1 << 30


@dataclass(frozen=True)
class Model:
    """A model whose trigger lies at the end of a batch.

    Attributes:
        trigger: ordinal of its trigger.
        born: ordinal of that batch.
        right: per sample of the stream, true where its prediction is right.
        withdrawn: ordinal of the batch from which on it is not there any more.
        lost: ordinal of the batch from which on it cannot be loaded.
    """

    trigger: int
    born: int
    right: npt.NDArray[np.bool_]
    withdrawn: int = NEVER
    lost: int = NEVER
    n_bytes: int = 1000
    latency: float | None = None


@dataclass(frozen=True)
class Stream:
    """Samples in stream order.

    Attributes:
        batch: ordinal of the batch of each sample, ascending.
        truth: class of each sample, 0 or 1.
        labelled: ordinal of the batch with which its label arrives; ``NEVER`` for none.
        maturity: batches after which a sample is mature.
        groups: value of the slice ``group`` of each sample.
    """

    n_batches: int
    batch: npt.NDArray[np.int64]
    truth: npt.NDArray[np.int64]
    labelled: npt.NDArray[np.int64]
    models: tuple[Model, ...]
    maturity: int = 0
    groups: npt.NDArray[np.object_] = field(default_factory=lambda: np.empty(0, object))

    @property
    def keys(self) -> npt.NDArray[np.int64]:
        first = np.searchsorted(self.batch, self.batch)
        return np.array([key_of(b, int(p)) for b, p in zip(self.batch.tolist(), np.arange(len(first)) - first)], np.int64)

    @property
    def enters(self) -> npt.NDArray[np.int64]:
        """Batch with which each sample enters a test: when it has a label and is mature."""
        return np.maximum(self.labelled, self.batch + self.maturity)

    def model(self, trigger: int) -> Model:
        return next(each for each in self.models if each.trigger == trigger)

    def outputs(self, trigger: int) -> npt.NDArray[np.float32]:
        """Logits of a model for all samples, ``float32[n, 2]``."""
        said = np.where(self.model(trigger).right, self.truth, 1 - self.truth)
        outputs: npt.NDArray[np.float32] = np.eye(2, dtype=np.float32)[said]
        return outputs


class MemoryEvidence:
    """Evidence of a stream after one batch."""

    def __init__(self, stream: Stream, batch: int) -> None:
        self.stream, self.batch = stream, batch
        self.last_key = key_of(batch, 999_999)
        self.time = batch * DAY

    def models(self) -> Mapping[int, int]:
        there = [each for each in self.stream.models if each.born <= self.batch < each.withdrawn]
        return {each.trigger: key_of(each.born, 999_999) for each in there}

    def rows(self, after: int, begun: int, since: int) -> npt.NDArray[np.int64]:
        """Rows that entered a test, batch after batch and by key in each."""
        enters = self.stream.enters
        chosen = (self.stream.keys > after) & (enters > max(begun, since)) & (enters <= self.batch)
        rows = np.flatnonzero(chosen)
        return rows[np.argsort(enters[rows], kind="stable")]

    def pairs(self, candidate: int, incumbent: int, after: int, begun: int, since: int) -> Pairs:
        rows = self.rows(after, begun, since)
        ours, theirs = (self.stream.outputs(each)[rows] for each in (candidate, incumbent))
        slices = {"group": self.stream.groups[rows]} if len(self.stream.groups) else {}
        return Pairs(self.stream.truth[rows], ours, theirs, slices)

    def coverage(self, candidate: int, after: int) -> float:
        mature = (self.stream.keys > after) & (self.stream.batch + self.stream.maturity <= self.batch)
        return float(np.mean(self.stream.labelled[mature] <= self.batch)) if mature.any() else 1.0

    def outcomes(self, model: int, begin: int, end: int) -> Outcomes | None:
        if self.time < end + self.stream.maturity * DAY:
            return None
        times = self.stream.batch * DAY
        rows = np.flatnonzero((times >= begin) & (times < end) & (self.stream.batch > self.stream.model(model).born))
        known = self.stream.labelled[rows] <= self.batch
        slices = {"group": self.stream.groups[rows]} if len(self.stream.groups) else {}
        truth = np.where(known, self.stream.truth[rows], -1)
        return Outcomes(self.stream.keys[rows].astype(np.uint64), truth, self.stream.outputs(model)[rows], slices)

    def n_bytes(self, model: int) -> int:
        return self.stream.model(model).n_bytes

    def latency(self, model: int) -> float | None:
        return self.stream.model(model).latency

    def load_problem(self, model: int) -> str | None:
        return None if self.batch < self.stream.model(model).lost else f"model {model} is lost"


def stream_of(
    sizes: Iterable[int],
    models: Iterable[tuple[int, float]],
    *,
    seed: int = 0,
    late: float = 0.0,
    never: float = 0.0,
    maturity: int = 0,
) -> Stream:
    """A random stream.

    Args:
        sizes: of its batches.
        models: batch and accuracy of each, in the order of their triggers.
        seed: of the draws.
        late: probability that a label comes up to three batches after its sample.
        never: probability that it never does.
        maturity: batches.
    """
    rng = np.random.default_rng(seed)
    sizes = list(sizes)
    batch = np.repeat(np.arange(len(sizes)), sizes)
    n = len(batch)
    labelled = batch + np.where(rng.random(n) < late, rng.integers(1, 4, n), 0)
    labelled = np.where(rng.random(n) < never, NEVER, labelled)
    truth, groups = rng.integers(0, 2, n), np.array(list("ab"), object)[rng.integers(0, 2, n)]
    made = tuple(Model(number, born, rng.random(n) < accuracy) for number, (born, accuracy) in enumerate(models))
    return Stream(len(sizes), batch, truth, labelled, made, maturity, groups)
