"""Sources of a training's batches: the whole training set, or a downsampling policy."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from torch import Tensor

from modyn_dagster.spec.tasks.task import RankingTask
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.downsampling.pool_builder import Validation
from modyn_dagster.training.downsampling.sampler import Sampler
from modyn_dagster.training.downsampling.scoring import Model, Scorer
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.inputs.batches import Batches, batch_sizes, in_order
from modyn_dagster.training.inputs.group_order import GroupOrder, as_laid
from modyn_dagster.training.loop.holdout import Division, Irreducible
from modyn_dagster.training.telemetry import Stopwatch


class Sampling(Protocol):
    """Source of a training's batches, and of their number."""

    @property
    def sizes(self) -> Sequence[int]:
        """Sizes of the batches of an epoch; upper bounds where the number of chosen samples is random."""

    @property
    def listens(self) -> bool:
        """True if ``trained`` needs the gradients of each step."""

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """Yield the batches of an epoch, from number ``start`` on."""

    def trained(self, gradients: Tensor) -> None:
        """Observe a step's gradients at the outputs, ``float[b, n_outputs]``."""

    def state_dict(self) -> dict[str, Any]:
        """Return the state that later batches depend on beside model, seed and position."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""


@dataclass(frozen=True)
class WholeSet:
    """Whole training set, in batches without a choice."""

    batches: Batches
    spec: TrainingSpec
    n: int
    seed: int
    listens: bool = False

    @property
    def sizes(self) -> Sequence[int]:
        """Sizes of the batches of an epoch."""
        return batch_sizes(self.n, self.spec)

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """Yield all batches from ``start`` on."""
        yield from self.batches.epoch(self.spec, seed=self.seed, epoch=epoch, start=start)

    def trained(self, gradients: Tensor) -> None:
        """Ignore the gradients."""

    def state_dict(self) -> dict[str, Any]:
        """Return an empty state: the position suffices."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Ignore the empty state."""


@dataclass(frozen=True)
class ByGroup(WholeSet):
    """Whole training set of a ranking, with the samples of a group one behind the other."""

    @cached_property
    def groups(self) -> GroupOrder:
        """Groups of the training set, read on first use."""
        return GroupOrder.of(self.batches, self.spec)

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """Yield all batches from ``start`` on."""
        shuffles = self.spec.shuffle is not False
        subset = self.groups.shuffled(seed=self.seed, epoch=epoch) if shuffles else self.groups.in_order()
        watch.lap("select")
        yield from self.batches.epoch(as_laid(self.spec), seed=self.seed, epoch=epoch, subset=subset, start=start)


def sampling_of(
    division: Division,
    spec: TrainingSpec,
    batches: Batches,
    model: Model,
    aside: Batches | None,
    irreducible: Irreducible,
    *,
    seed: int,
    resumed: bool = False,
) -> Sampling:
    """Build the source of a training's batches; ``aside`` are the batches of the held-out part.

    ``resumed``: a state will be loaded later, which holds the irreducible losses.
    """
    plan = division.plan
    if plan is None:
        whole = ByGroup if isinstance(spec.task, RankingTask) else WholeSet
        return whole(batches, spec, len(division.data), seed)
    last_layer = plan.spec.gradient == "last_layer"
    embeddings, gradients = "embeddings" in plan.needs or last_layer, plan.needs_gradients(irreducible.task.kind)
    scorer = Scorer(model, gradients=gradients, embeddings=embeddings, source=irreducible.source)
    needs_floors = "irreducible_losses" in plan.needs and not resumed
    floors = irreducible.losses(plan, division, model.loss, seed) if needs_floors else None
    validation = None
    if "validation_gradient" in plan.needs and aside is not None:
        held_out = partial(aside.epoch, in_order(spec), seed=seed, epoch=0, evaluate=True)
        validation = Validation(held_out, model.loss, last_layer=last_layer, device=irreducible.device)
    return Sampler(plan, spec, division.data, batches, scorer, seed=seed, irreducible=floors, validation=validation)
