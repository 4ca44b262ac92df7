"""The experiments of the paper as data: streams, samplers, numbers reported by the paper, and the summary of our runs."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import numpy as np
import numpy.typing as npt

from benchmarks.tbs_learners import Learner, errors, expected_shortfall, least_squares, naive_bayes, nearest_neighbours
from benchmarks.tbs_reference import ReferenceRTBS
from benchmarks.tbs_streams import WARM_UP, Array, Items, Pattern, gaussian_classes, regression, usenet2
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.selection.time_biased import RTBS, Sampler, SlidingWindow, UniformReservoir

#: Mean error and expected shortfall.
Pair = tuple[float, float]
Sizes = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Experiment:
    """One pattern of one figure or table.

    Attributes:
        id: ``<figure or table>.<pattern>``.
        n: size of the samples.
        decays: rates of R-TBS that take part.
        items: the stream of a run.
        learner: the model.
        paper: what the paper reports, by sampler; a sampler that is missing has no number there.
        ratios: what it reports as multiples of R-TBS.
        after: the first batch that the shortfall counts.
        worst: its share of the batches.
    """

    id: str
    n: int
    decays: tuple[float, ...]
    items: Callable[[int], Items]
    learner: Learner
    paper: Mapping[str, Pair] = field(default_factory=dict)
    ratios: Mapping[str, Pair] = field(default_factory=dict)
    after: int = 20
    worst: float = 0.1

    def samplers(self, seed: int) -> dict[str, Sampler | ReferenceRTBS]:
        """What competes; the reference implements the first decay rate."""
        found: dict[str, Sampler | ReferenceRTBS] = {f"R-TBS {decay:g}": RTBS(self.n, decay, seed) for decay in self.decays}
        found["reference"] = ReferenceRTBS(self.n, self.decays[0], seed)
        return {**found, "SW": SlidingWindow(self.n), "Unif": UniformReservoir(self.n, seed)}

    def run(self, runs: int) -> dict[str, Array]:
        """Errors by sampler, ``float64[runs, batches]``."""
        found = [errors(self.items(seed), self.samplers(seed), self.learner) for seed in range(runs)]
        return {name: np.stack([run[name] for run in found]) for name in found[0]}

    def summary(self, errors_of_runs: Array) -> Pair:
        """Mean error over all batches and runs, and the mean over runs of the shortfall."""
        shortfalls = [expected_shortfall(run[self.after :], self.worst) for run in errors_of_runs]
        return float(np.nanmean(errors_of_runs)), float(np.mean(shortfalls))


@dataclass(frozen=True, slots=True)
class Row:
    """A pattern of Table 1.

    The paper says of ``after`` that it is 20, where the first change is over, which it is not in longer patterns, and nothing of
    ``batches``. The end of the first change, two periods and 30 batches of the single event agree best
    (``benchmarks/tbs_sweep.py``).
    """

    name: str
    pattern: Pattern
    batches: int
    after: int
    paper: Mapping[str, Pair]


DECAYS: Final = (0.05, 0.07, 0.1)


def _row(name: str, pattern: Pattern, batches: int, *pairs: Pair) -> Row:
    names = ("R-TBS 0.05", "R-TBS 0.07", "R-TBS 0.1", "SW", "Unif")
    return Row(name, pattern, batches, pattern.normal + pattern.abnormal, dict(zip(names, pairs, strict=True)))


TABLE: Final = (
    _row("single", Pattern(10, 10, single=True), 30, (19.8, 17.7), (19.1, 18.7), (18.0, 20.0), (19.2, 53.3), (25.6, 19.3)),
    _row("P10_10", Pattern(10, 10), 40, (18.2, 24.2), (17.4, 23.2), (16.6, 24.1), (19.0, 49.8), (25.4, 42.3)),
    _row("P20_10", Pattern(20, 10), 60, (17.9, 28.2), (17.2, 28.1), (16.6, 29.9), (18.8, 47.3), (25.0, 43.2)),
    _row("P30_10", Pattern(30, 10), 80, (15.5, 31.6), (14.9, 31.0), (15.1, 31.0), (16.5, 44.5), (21.0, 47.6)),
)


def constant(batches: int) -> Callable[[np.random.Generator], Sizes]:
    """Batches of 100."""
    return lambda _: np.full(WARM_UP + batches, 100)


def uniform(batches: int) -> Callable[[np.random.Generator], Sizes]:
    """Batches of 0 to 200 items, all sizes equally likely."""
    return lambda rng: rng.integers(0, 201, WARM_UP + batches)


def growing(batches: int) -> Callable[[np.random.Generator], Sizes]:
    """Batches of 100 that grow by 2 % each after the warm-up."""
    return lambda _: np.rint(100 * 1.02 ** np.maximum(0, np.arange(-WARM_UP, batches))).astype(np.int64)


def experiments(messages: Path | None) -> Iterator[Experiment]:
    """Table 1, Figures 11, 12 and, where the file is given, 13."""
    for row in TABLE:
        items = _made(gaussian_classes, row.pattern, constant(row.batches))
        yield Experiment(f"table1.{row.name}", 1_000, DECAYS, items, nearest_neighbours, row.paper, after=row.after)
    for name, sizes, ratios in (
        ("uniform", uniform(50), {"SW": (1.16, 1.82), "Unif": (1.47, 1.76)}),
        ("growing", growing(50), {"SW": (1.14, 1.98), "Unif": (1.40, 1.78)}),
    ):
        items = _made(gaussian_classes, Pattern(10, 10), sizes)
        yield Experiment(f"fig11.{name}", 1_000, (0.07,), items, nearest_neighbours, ratios=ratios)
    saturated: dict[str, Pair] = {"R-TBS 0.07": (3.51, 6.04), "SW": (4.02, 10.94), "Unif": (4.43, 10.05)}
    unsaturated: dict[str, Pair] = {"R-TBS 0.07": (3.50, 5.97), "SW": (4.17, 5.86)}
    for name, n, pattern, paper in (
        ("fig12.saturated", 1_000, Pattern(10, 10), saturated),
        ("fig12.unsaturated", 1_600, Pattern(10, 10), unsaturated),
        ("fig12.P16_16", 1_600, Pattern(16, 16), {}),
    ):
        yield Experiment(name, n, (0.07,), _made(regression, pattern, constant(50)), least_squares, paper)
    if messages is not None:
        news = usenet2(messages)
        figure: dict[str, Pair] = {"R-TBS 0.3": (26.5, 43.3), "SW": (30.0, 52.7), "Unif": (29.5, 42.7)}
        yield Experiment("fig13.usenet2", 300, (0.3,), lambda _: news, naive_bayes, figure, after=0, worst=0.2)


def _made(
    stream: Callable[[Pattern, Sizes, np.random.Generator], Items],
    pattern: Pattern,
    sizes: Callable[[np.random.Generator], Sizes],
) -> Callable[[int], Items]:
    def items(seed: int) -> Items:
        rng = rng_for(seed, "stream")
        return stream(pattern, sizes(rng), rng)

    return items
