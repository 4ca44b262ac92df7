"""Coresets against apricot and cords, and the cost of choosing from batches beside that of the forward pass.

``python benchmarks/downsampling.py --json figures.json``. CRAIG, GradMatch and k-center choose ``k`` of ``n x width`` gradients
that lie in clusters. cords and apricot take part where they are installed; none of them offers k-center, so its figure
only informs.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

if __name__ == "__main__":
    sys.path[0] = str(Path(__file__).resolve().parents[1])

from benchmarks.groups import measured, one_of
from benchmarks.measure import ROUNDS, Contender, Machine, Run, interleave, timed
from benchmarks.report import Figure, busyness, write_json
from fastpath import TrainingSet
from modyn_dagster.data.samples import Samples
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainingData, train
from modyn_dagster.training.downsampling import select


@dataclass(frozen=True)
class Setting:
    """Sizes."""

    n: int = 10_000
    width: int = 512
    k: int = 500
    rows: int = 100_000
    columns: int = 64
    hidden: int = 512
    machine: Machine = field(default_factory=Machine)


QUICK = Setting(n=2_000, width=64, k=30, rows=4_000, columns=32, hidden=128)


def clustered(setting: Setting) -> Tensor:
    """``float32[n, width]`` around 50 centres."""
    made = torch.Generator().manual_seed(0)
    centres = torch.randn(50, setting.width, generator=made)
    noise = torch.randn(setting.n, setting.width, generator=made)
    return centres[torch.randint(50, (setting.n,), generator=made)] + noise / 2


def coresets(setting: Setting) -> Iterator[Figure]:
    """Each method and its opponent, side by side; a ratio above 1 says that ours is faster."""
    gradients, k = clustered(setting), setting.k
    opponents: dict[str, Callable[[], object] | None] = {
        "craig": _apricot(gradients.numpy(), k),
        "gradmatch": _cords(gradients.numpy(), k),
        "k_center": None,
    }
    for name, opponent in opponents.items():
        contenders: dict[str, Contender] = {
            "ours": timed(1, partial(select, name, gradients=gradients, embeddings=gradients, k=k, seed=0))
        }
        contenders |= {} if opponent is None else {"theirs": timed(1, opponent)}
        rounds = interleave(contenders, setting.machine, rounds=ROUNDS, warm_up=1)
        size = f"{k} of {setting.n} x {setting.width}"
        yield Figure(f"{name}.seconds", f"{name}, {size}", rounds.seconds("ours"), "s")
        ratio = rounds.ratio("ours", "theirs") if opponent is not None else None
        yield Figure(f"{name}.ratio", f"{name} against the library", ratio, "x", 1.0, note="" if ratio else "not installed")


def _apricot(gradients: npt.NDArray[np.float32], k: int) -> Callable[[], object] | None:
    try:
        from apricot import FacilityLocationSelection
        from sklearn.metrics import pairwise_distances
    except ImportError:
        return None

    def run() -> object:
        apart = pairwise_distances(gradients)
        return FacilityLocationSelection(k, metric="precomputed", optimizer="lazy").fit(apart.max() - apart)

    return run


def _cords(gradients: npt.NDArray[np.float32], k: int) -> Callable[[], object] | None:
    try:
        from cords.selectionstrategies.helpers.omp_solvers import OrthogonalMP_REG
    except ImportError:
        return None
    columns, target = gradients.T.astype(np.float64), gradients.mean(0).astype(np.float64)
    return lambda: OrthogonalMP_REG(columns, target, nnz=k, positive=True, lam=0.0)


@dataclass
class Rows:
    """Numbers in memory, read by key."""

    columns: dict[str, npt.NDArray[np.float32]]
    labels: npt.NDArray[np.int64]

    def read(self, keys: KeyArray) -> Samples:
        """By key."""
        at = (keys - keys_of(1, np.arange(1))[0]).astype(np.int64)
        times = np.zeros(len(at), dtype="datetime64[us]")
        columns = {name: column[at] for name, column in self.columns.items()}
        return Samples(keys=keys, times=times, labels=self.labels[at], targets=None, columns=columns, blobs=None)


def batch_then_sample(setting: Setting) -> Iterator[Figure]:
    """A training that scores every batch, over one that does not plus the forward passes; at most 1.1."""
    rng = np.random.default_rng(0)
    table = rng.normal(size=(setting.rows, setting.columns)).astype(np.float32)
    rows = Rows({"x": table}, (table[:, 0] > 0).astype(np.int64))
    data = TrainingData(TrainingSet.of(keys_of(1, np.arange(setting.rows))), rows)
    forward = _forward(setting, torch.from_numpy(table))
    for name in ("loss", "margin", "dlis"):
        options = {"start": "always"} if name == "dlis" else {}

        contenders: dict[str, Contender] = {
            "scored": partial(_trained, setting, data, name, options),
            "uniform": partial(_trained, setting, data, "uniform", {}),
        }
        rounds = interleave(contenders | {"forward": forward}, setting.machine, rounds=ROUNDS, warm_up=1)
        ratios = [
            scored.seconds / (plain.seconds + passes.seconds)
            for scored, plain, passes in zip(*(rounds.runs[each] for each in ("scored", "uniform", "forward")), strict=True)
        ]
        spread = replace(rounds.seconds("scored"), value=float(np.median(ratios)), min=min(ratios), max=max(ratios))
        yield Figure(f"bts.{name}", f"{name} from batches of 1,024, over uniform + forward", spread, "x", 1.1, at_most=True)


def _trained(setting: Setting, data: TrainingData, policy: str, options: dict[str, str]) -> Run:
    content = {
        "model": {"name": "mlp", "hidden": [setting.hidden, setting.hidden]},
        "batch_size": 1024,
        "downsampling": {"policy": policy, "ratio": 0.5, "options": options},
    }
    spec = TrainingSpec.model_validate(content)
    found = train(spec, data, task=Task("class", n_classes=2), seed=0, threads=torch.get_num_threads(), source="benchmark")
    return Run(1, sum(seconds for stage, seconds in found.seconds.items() if stage not in ("prepare", "finish")))


def _forward(setting: Setting, table: Tensor) -> Contender:
    hidden = setting.hidden
    body = nn.Sequential(
        nn.Linear(setting.columns, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 2)
    )

    def passes() -> None:
        with torch.no_grad():
            for start in range(0, len(table), 1024):
                body(table[start : start + 1024])

    return timed(1, passes)


_GROUPS = {"coresets": coresets, "batches": batch_then_sample}


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="everything smaller, within a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(_GROUPS), default=tuple(_GROUPS), help=", ".join(_GROUPS))
    options = parser.parse_args()
    setting = QUICK if options.quick else Setting()
    found = measured(_GROUPS, options.only, setting) + busyness(setting.machine)
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
