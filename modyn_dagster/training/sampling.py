"""From which samples of a training set the steps of a training are made: all of them, or what a policy chooses."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from torch import Tensor, nn

from modyn_dagster.randomness import seed_for
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.batch import Batch
from modyn_dagster.training.batches import Batches, batch_sizes
from modyn_dagster.training.checkpoint import CheckpointFile
from modyn_dagster.training.data import Task, TrainedModel, TrainingData
from modyn_dagster.training.downsampling.holdout import irreducible_losses, split
from modyn_dagster.training.downsampling.plan import Plan
from modyn_dagster.training.downsampling.sampler import Sampler
from modyn_dagster.training.downsampling.scoring import Forward, Scorer
from modyn_dagster.training.downsampling.validation import Validation
from modyn_dagster.training.losses import SampleLoss
from modyn_dagster.training.saver import Saver
from modyn_dagster.training.stopwatch import Stopwatch


class Sampling(Protocol):
    """Hands out the batches of a training, and knows how many there will be."""

    @property
    def sizes(self) -> Sequence[int]:
        """Samples of each batch of an epoch; where how many are chosen is up to chance, the most there can be."""

    @property
    def listens(self) -> bool:
        """Whether ``trained`` wants to be told."""

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """The batches of an epoch, from number ``start`` on."""

    def trained(self, gradients: Tensor) -> None:
        """What a step saw at its outputs, ``float[b, n_outputs]``."""

    def state_dict(self) -> dict[str, Any]:
        """All that later batches depend on beside model, seed and place."""

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""


@dataclass(frozen=True)
class Everything:
    """Every batch as it comes."""

    batches: Batches
    spec: TrainingSpec
    n: int
    seed: int
    listens: bool = False

    @property
    def sizes(self) -> Sequence[int]:
        """Of the batches of an epoch."""
        return batch_sizes(self.n, self.spec)

    def epoch(self, epoch: int, watch: Stopwatch, start: int = 0) -> Generator[Batch]:
        """All batches from ``start`` on."""
        yield from self.batches.epoch(self.spec, seed=self.seed, epoch=epoch, start=start)

    def trained(self, gradients: Tensor) -> None:
        """Nobody asks."""

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the place says it all."""
        return {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Nothing to do."""


@dataclass(frozen=True)
class Parts:
    """A training set as its policy divides it.

    Attributes:
        plan: the policy; None: everything is trained on.
        data: what is trained on.
        aside: what is kept for the policy; None where nothing is.
    """

    plan: Plan | None
    data: TrainingData
    aside: TrainingData | None

    @classmethod
    def of(cls, spec: TrainingSpec, data: TrainingData, task: Task, *, seed: int, source: str) -> "Parts":
        """As the spec begins. ``ConfigError`` for a policy that cannot be built, or not for this task."""
        found = None if spec.downsampling is None else spec.downsampling.at(0)
        if found is None:
            return cls(None, data, None)
        plan = Plan.of(found, task.kind, epochs=spec.epochs, source=source)
        if not plan.stands_aside:
            return cls(plan, data, None)
        return cls(plan, *split(data, found.holdout.share, seed))


@dataclass(frozen=True)
class Model:
    """The model at work: its body, how it is called on a batch, and what is minimised."""

    body: nn.Module
    forward: Forward
    loss: SampleLoss


@dataclass(frozen=True)
class Irreducible:
    """How the models of irreducible losses are trained: as the one they serve, without downsampling.

    Attributes:
        train: ``modyn_dagster.training.train``.
        spec: of the training they serve.
        task: with as many classes as its model has outputs.
        threads: that compute.
        source: for errors.
        saver: of the training they serve: what they gave, and how far they are, outlives a kill.
    """

    train: Callable[..., TrainedModel]
    spec: TrainingSpec
    task: Task
    threads: int
    source: str
    saver: Saver

    def losses(self, plan: Plan, parts: "Parts", loss: SampleLoss, seed: int) -> Tensor:
        """Of every sample that is trained on, ``float32[n]``."""
        # Budgets and early stopping are those of the model that is served.
        none = dict.fromkeys(["downsampling", "early_stopping", "max_steps", "max_samples", "initial_weights"])
        changes = none | {"carry_optimizer": False, "epochs": plan.spec.holdout.epochs or self.spec.epochs}
        spec, own = self.spec.model_copy(update=changes), seed_for(seed, "downsampling", "irreducible")
        given = {"task": self.task, "threads": self.threads, "source": self.source}

        def train_on(data: TrainingData, checkpoint: CheckpointFile | None) -> TrainedModel:
            return self.train(spec, data, seed=own, checkpoint=checkpoint, **given)

        where: dict[str, Any] = {"seed": seed, "threads": self.threads, "source": self.source, "keep": self.saver.kept}
        return irreducible_losses(train_on, loss, parts.data, parts.aside, **where)


def sampling_of(
    parts: Parts,
    spec: TrainingSpec,
    batches: Batches,
    model: Model,
    aside: Batches | None,
    irreducible: Irreducible,
    *,
    seed: int,
    resumed: bool = False,
) -> Sampling:
    """What hands out the batches of a training; ``aside`` are those of what is set aside.

    ``resumed``: a state will be loaded, with whatever takes long to find out.
    """
    plan = parts.plan
    if plan is None:
        return Everything(batches, spec, len(parts.data), seed)
    last_layer = plan.spec.gradient == "last_layer"
    embeddings, gradients = "embeddings" in plan.needs or last_layer, plan.judges_gradients(irreducible.task.kind)
    scorer = Scorer(model.body, model.forward, model.loss, gradients=gradients, embeddings=embeddings, source=irreducible.source)
    wanted = "irreducible_losses" in plan.needs and not resumed
    floors = irreducible.losses(plan, parts, model.loss, seed) if wanted else None
    validation = None
    if "validation_gradient" in plan.needs and aside is not None:
        ordered = spec.model_copy(update={"shuffle": False, "drop_last": False})
        validation = Validation(
            partial(aside.epoch, ordered, seed=seed, epoch=0, evaluate=True), model.loss, last_layer=last_layer
        )
    return Sampler(plan, spec, parts.data, batches, scorer, seed=seed, irreducible=floors, validation=validation)
