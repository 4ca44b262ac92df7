"""The streams of the time-biased sampling paper (Hentschel, Haas, Tian, EDBT 2018, §6.2 to §6.4), batch by batch."""

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

#: Batches in normal mode before the clock starts at 0.
WARM_UP = 100
Array = npt.NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Pattern:
    """When the stream is abnormal: after every ``normal`` batches for ``abnormal`` ones, once only where ``single``."""

    normal: int
    abnormal: int
    single: bool = False

    def is_abnormal(self, time: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """By batch; before time 0 the stream is normal."""
        phase = time if self.single else time % (self.normal + self.abnormal)
        return (time >= 0) & (phase >= self.normal) & (phase < self.normal + self.abnormal)


@dataclass(frozen=True, slots=True)
class Items:
    """A stream in memory: an item's number is its key; ``ends[i]`` is where batch i ends."""

    features: Array
    targets: Array
    ends: npt.NDArray[np.int64]
    warm_up: int = WARM_UP


def gaussian_classes(pattern: Pattern, sizes: npt.NDArray[np.int64], rng: np.random.Generator) -> Items:
    """100 classes around random centres in a square of side 80; half of them five times as frequent, in turn (§6.2)."""
    centres = 80 * rng.random((100, 2))
    frequent = np.repeat([5.0, 1.0], 50) / 300
    abnormal = _by_item(pattern, sizes)
    n = len(abnormal)
    classes = np.where(abnormal, rng.choice(100, n, p=frequent[::-1]), rng.choice(100, n, p=frequent))
    return Items(centres[classes] + rng.normal(size=(n, 2)), classes.astype(float), np.cumsum(sizes))


def regression(pattern: Pattern, sizes: npt.NDArray[np.int64], rng: np.random.Generator) -> Items:
    """A plane through the origin with unit noise, whose slopes change with the mode (§6.3)."""
    abnormal = _by_item(pattern, sizes)
    x = rng.random((len(abnormal), 2))
    y = np.where(abnormal, x @ [-3.6, 3.8], x @ [4.2, -0.4]) + rng.normal(size=len(x))
    return Items(x, y, np.cumsum(sizes))


def usenet2(path: Path, batch: int = 50) -> Items:
    """1,500 messages of 99 words; what is interesting changes every 300 (§6.4). No warm-up."""
    rows = np.genfromtxt(path, delimiter=",", skip_header=1)
    return Items(rows[:, :-1], rows[:, -1], np.arange(batch, len(rows) + 1, batch), warm_up=0)


def _by_item(pattern: Pattern, sizes: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return np.repeat(pattern.is_abnormal(np.arange(len(sizes)) - WARM_UP), sizes)
