"""Pools that do what pools may do: pickle, call in any order, call twice, or lose a worker."""

import pickle
from collections.abc import Callable, Iterable, Iterator

import numpy as np

from modyn_dagster.distributed.protocols import Item, Resources, Result
from modyn_dagster.errors import WorkerLost

ONE = Resources()


class WhimsicalPool:
    """Calls in random order, some twice, items and results pickled as between processes."""

    def __init__(self, workers: int, seed: int) -> None:
        self.workers = workers
        self.rng = np.random.default_rng(seed)
        self.calls = 0

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], resources: Resources = ONE) -> Iterator[Result]:
        sent = [pickle.dumps(item) for item in items]
        order = self.rng.permutation(len(sent)).tolist()
        answers: dict[int, Result] = {}
        for place in [*order, *order[: self.rng.integers(len(sent) + 1)]]:
            self.calls += 1
            result = function(pickle.loads(sent[place]))  # noqa: S301 - just pickled
            answers[place] = pickle.loads(pickle.dumps(result))  # noqa: S301 - just pickled
        return iter([answers[place] for place in range(len(sent))])


class LosingPool:
    """Makes a number of calls, then loses a worker once, then goes on."""

    workers = 2

    def __init__(self, after: int) -> None:
        self.left = after
        self.lost = False

    def map(self, function: Callable[[Item], Result], items: Iterable[Item], resources: Resources = ONE) -> Iterator[Result]:
        for item in items:
            if self.left == 0 and not self.lost:
                self.lost = True
                raise WorkerLost(str(item), "killed by signal 9")
            self.left -= 1
            yield function(item)
