"""R-TBS item by item, with Python lists and its own random numbers: the paper's pseudo-code, as a reference."""

import math
import random

import numpy as np
import numpy.typing as npt


class ReferenceRTBS:
    """Algorithms 2 and 3 of Hentschel, Haas, Tian (EDBT 2018); unit time between batches."""

    def __init__(self, n: int, decay: float, seed: int) -> None:
        self.n, self.keep = n, math.exp(-decay)
        self.random = random.Random(seed)
        self.full: list[int] = []
        self.partial: list[int] = []
        self.weight = self.size = 0.0

    def update(self, keys: npt.NDArray[np.uint64]) -> None:
        batch = [int(key) for key in keys]
        saturated = self.weight >= self.n
        self.weight *= self.keep
        if saturated and self.weight + len(batch) >= self.n:
            self.weight += len(batch)
            m = math.floor(len(batch) * self.n / self.weight + self.random.random())
            self.random.shuffle(self.full)
            self.full = self.full[m:] + self.random.sample(batch, m)
            return
        if self.weight > 0:
            self._downsample(self.weight)
        self.full += batch
        self.weight += len(batch)
        self.size = self.weight
        if self.weight > self.n:
            self._downsample(float(self.n))

    def sample(self) -> npt.NDArray[np.uint64]:
        with_partial = self.random.random() < self.size % 1
        return np.array(self.full + (self.partial if with_partial else []), dtype=np.uint64)

    def _downsample(self, target: float) -> None:
        fraction, u = self.size % 1, self.random.random()
        if int(target) == 0:
            if u > fraction / self.size:
                self._swap()
            self.full = []
        elif int(target) == int(self.size):
            if u > (1 - target / self.size * fraction) / (1 - target % 1):
                self._swap()
        elif u <= target / self.size * fraction:
            self.full = self.random.sample(self.full, int(target))
            self._swap()
        else:
            self.full = self.random.sample(self.full, int(target) + 1)
            self.partial = [self.full.pop(self.random.randrange(len(self.full)))]
        if target % 1 == 0:
            self.partial = []
        self.size = target

    def _swap(self) -> None:
        moved = self.full.pop(self.random.randrange(len(self.full)))
        self.full += self.partial
        self.partial = [moved]
