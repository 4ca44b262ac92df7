"""Batches of a training with a downsampling policy."""

from collections.abc import Generator, Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from modyn_dagster.errors import TrainingError
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.data import TrainingData
from modyn_dagster.training.downsampling.balance import ByClass
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.downsampling.policies.importance import DLIS, ImportanceStart
from modyn_dagster.training.downsampling.pool import Chosen, Pool
from modyn_dagster.training.downsampling.pool_builder import History, Pools, Positions, Validation
from modyn_dagster.training.downsampling.scoring import Scored, Scorer
from modyn_dagster.training.inputs.batch import Batch, Subset
from modyn_dagster.training.inputs.batches import Batches, batch_sizes, in_order
from modyn_dagster.training.telemetry import Stopwatch
from modyn_dagster.training.user_code import user_code

#: Batches whose seeds are derived together; one by one between steps they cost three times as much.
_SEEDS: Final = 64


class Sampler:
    """Batches of an epoch, chosen from each batch in turn or from the whole training set before the epoch.

    Args:
        plan: the policy and its spec.
        spec: spec of the training.
        data: training set.
        batches: batches of the training set.
        scorer: scores batches with the current model.
        seed: seed of the training.
        irreducible: losses of models that never saw the samples, ``float[n]``; None unless the policy needs them.
        validation: held-out samples; None unless the policy needs them.
    """

    def __init__(
        self,
        plan: Plan,
        spec: TrainingSpec,
        data: TrainingData,
        batches: Batches,
        scorer: Scorer,
        *,
        seed: int,
        irreducible: Tensor | None = None,
        validation: Validation | None = None,
    ) -> None:
        self._plan, self._spec, self._data, self._batches, self._scorer = plan, spec, data, batches, scorer
        self._seed, self._validation = seed, validation
        self._source, self._seeds = f"downsampling by {plan.name}", dict[tuple[int, int], int]()
        self._subset: Subset | None = None
        self._n_batches = len(batch_sizes(len(data), spec))
        by_key = plan.spec.mode == "batch_then_sample" and bool(plan.needs & {"history", "irreducible_losses"})
        self._positions = Positions(data.chosen.keys()) if by_key else None
        history = History(spec.epochs, len(data)) if "history" in plan.needs else None
        self._pools = Pools(plan, history, irreducible, validation)
        waits = isinstance(plan.policy, DLIS) and plan.policy.start == "auto" and plan.spec.mode == "batch_then_sample"
        self._start = ImportanceStart() if waits else None

    @property
    def sizes(self) -> list[int]:
        """Sizes of the batches of an epoch; upper bounds where the number of chosen samples is random."""
        return planned_sizes(self._plan, self._spec, len(self._data))

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """Yield the batches of an epoch from batch ``start`` on, with the state that earlier batches left."""
        if self._validation is not None and start == 0:
            self._validation.renew(self._scorer)
            watch.lap("select")
        if self._plan.spec.mode == "sample_then_batch":
            if start == 0:
                self._choose_subset(epoch)
                watch.lap("select")
            yield from self._batches.epoch(self._spec, seed=self._seed, epoch=epoch, subset=self._subset, start=start)
            return
        for number, batch in enumerate(self._batches.epoch(self._spec, seed=self._seed, epoch=epoch, start=start), start):
            watch.lap("data")
            subset = self._choose(batch, epoch, number)
            watch.lap("select")
            yield subset

    def trained(self, gradients: Tensor) -> None:
        """Observe a step's gradients at the outputs, ``float[b, n_outputs]``. DLIS decides by them when to start."""
        if self._start is not None:
            self._start.observe(gradients.norm(dim=1))

    @property
    def listens(self) -> bool:
        """True if ``trained`` needs the gradients of each step."""
        return self._start is not None

    def state_dict(self) -> dict[str, Any]:
        """Return the state that later batches depend on beside model, seed and position, and that of a custom policy."""
        subset = self._subset
        return {name: part.state_dict() for name, part in self._stateful().items()} | {
            "irreducible": self._pools.irreducible,
            "subset": None if subset is None else (subset.positions, subset.weights, subset.pool_weight),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        for name, part in self._stateful().items():
            part.load_state_dict(state[name])
        self._pools.irreducible = state["irreducible"]
        self._subset = None if state["subset"] is None else Subset(*state["subset"])

    def _stateful(self) -> dict[str, Any]:
        parts = {"history": self._pools.history, "start": self._start, "validation": self._validation}
        policy = {"policy": self._plan.policy} if hasattr(self._plan.policy, "state_dict") else {}
        return {name: part for name, part in parts.items() if part is not None} | policy

    def _choose(self, batch: Batch, epoch: int, number: int) -> Batch:
        n, seed = len(batch), self._seed_of(epoch, number)
        k, policy = self._plan.budget(n), self._plan.policy
        if self._start is not None and isinstance(policy, DLIS):
            if not self._start.reached(n, k):
                chosen = policy.uniform(Pool(n, self._plan.name, epoch=epoch), k, seed)
                return batch.subset(chosen.indices, chosen.weights, estimates=False)
            policy = policy.after_start()
        everything = batch.everything
        positions = None if self._positions is None else self._positions.of(everything.keys)
        scored = self._scorer(batch) if self._plan.needs else None
        keys = everything.keys.cpu().numpy().view(np.uint64)
        pool = self._pools.of(scored, everything.targets, positions, epoch, keys)
        with user_code(self._source):
            chosen = policy(pool, k, seed)
        return batch.subset(chosen.indices, chosen.weights, estimates=self._estimates(chosen))

    def _seed_of(self, epoch: int, number: int) -> int:
        if (epoch, number) not in self._seeds:
            numbers = range(number, min(number + _SEEDS, self._n_batches))
            self._seeds = {(epoch, other): seed_for(self._seed, "downsampling", epoch, other) for other in numbers}
        return self._seeds[epoch, number]

    def _choose_subset(self, epoch: int) -> None:
        period = self._plan.spec.period
        due = self._subset is None or (period > 0 and epoch % period == 0)
        if not due and self._pools.history is None:
            return
        n = len(self._data)
        scored = self._scored() if self._plan.needs else None
        targets = self._targets() if scored is None else scored.targets
        pool = self._pools.of(scored, targets, torch.arange(n), epoch)
        if due:
            with user_code(self._source):
                chosen = self._plan.policy(pool, self._plan.budget(n), seed_for(self._seed, "downsampling"))
            self._subset = self._subset_of(chosen)

    def _scored(self) -> Scored:
        return self._scorer.all(self._in_order())

    def _targets(self) -> Tensor:
        """Targets of the whole set where its classes decide; a policy that needs no input gets none."""
        if not isinstance(self._plan.policy, ByClass):
            return torch.empty(0)
        return torch.cat([batch.everything.targets.clone() for batch in self._in_order()])

    def _in_order(self) -> Iterator[Batch]:
        return self._batches.epoch(in_order(self._spec), seed=self._seed, epoch=0, evaluate=True)

    def _subset_of(self, chosen: Chosen) -> Subset:
        positions, factors = chosen.indices.cpu().numpy(), chosen.weights.to("cpu", torch.float64).numpy()
        base = self._data.chosen.weights()
        if not (factors > 0).any():
            raise TrainingError(f"{self._source}: the policy chose no sample with a weight above 0")
        # A weight of 0 adds nothing to any loss.
        positions, factors = positions[factors > 0], factors[factors > 0]
        weights = (base[positions] * factors).astype(np.float32)
        whole = float(base.sum(dtype=np.float64))
        return Subset(positions, weights, whole if self._estimates(chosen) else None)

    def _estimates(self, chosen: Chosen) -> bool:
        return chosen.estimates and not self._plan.spec.self_normalised


def planned_sizes(plan: Plan, spec: TrainingSpec, n: int) -> list[int]:
    """Sizes of the batches of an epoch on ``n`` samples; upper bounds where the number of chosen samples is random."""
    if plan.unsized:
        return batch_sizes(n, spec)
    if plan.spec.mode == "batch_then_sample":
        return [plan.budget(size) for size in batch_sizes(n, spec)]
    return batch_sizes(plan.budget(n), spec)
