"""Trial of a trainer on made-up rows: the same fit twice must give the same bytes, and bytes the same model."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from modyn_dagster.errors import ConfigError, TrainingError
from modyn_dagster.keys import keys_of
from modyn_dagster.reproducibility.randomness import rng_for, seed_for
from modyn_dagster.spec.learning.trainers import LightGBMSpec, TrainerSpec, XGBoostSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.trainers.protocol import Inputs, LearningTask, TrainingSamples, Weights, report_nowhere

if TYPE_CHECKING:
    from modyn_dagster.training.trainers.body import TrainerBody

ROWS: Final = 100
#: Made-up samples of each group of a ranking.
_PER_GROUP: Final = 10
#: Rounds of boosting in a trial.
_ROUNDS: Final = 5


@dataclass(frozen=True, slots=True)
class Trial:
    """Fits of a trainer on 100 made-up rows.

    Standardised columns are drawn from a normal distribution, others between 0 and 1; every column has one value.

    Attributes:
        training: training of the pipeline.
        model: its trainer.
        task: task with made-up columns.
        weighted: whether samples have weights.
        seed: seed of the pipeline.
    """

    training: TrainingSpec
    model: TrainerSpec
    task: LearningTask
    weighted: bool
    seed: int

    def run(self) -> None:
        """Fit twice, and once more from the first model if models continue each other.

        ``ConfigError`` for a fit that fails, for bytes that differ, and for bytes that make another model.
        """
        # Imported here: `check` of projects without trainers needs no torch.
        import torch

        from modyn_dagster.reproducibility.determinism import reproducible
        from modyn_dagster.training.trainers.body import TrainerBody

        spec, source = _shortened(self.model), self.task.source
        parts = list(self._parts())
        inputs = np.concatenate([part.inputs for part, _ in parts])
        stored, outputs = [], []
        for _ in range(2):
            with reproducible(self.seed, threads=self.task.threads):
                body = TrainerBody(spec, self.task)
                if not self._fit(body, parts):
                    return
                stored.append(body.stored())
                # Before predictions, which some models count.
                rewritten = body.rewritten()
                outputs.append(body(torch.from_numpy(inputs)).numpy())
        if stored[0] != stored[1]:
            rule = f"is not deterministic: two fits to the same {ROWS} rows gave different models"
            raise ConfigError(source, "training.model", spec.name, rule)
        if not np.array_equal(*outputs):
            rule = "is not deterministic: two predictions of one model for the same rows differ"
            raise ConfigError(source, "training.model", spec.name, rule)
        if rewritten != stored[1]:
            raise ConfigError(source, "training.model", spec.name, "to_bytes of a model that from_bytes read gives other bytes")

    def _fit(self, body: "TrainerBody", parts: Sequence[tuple[TrainingSamples, Weights]]) -> bool:
        """Fit, and continue; False for a failure that may be due to the number of columns, which only the data tell."""
        continued = bool(self.training.use_previous_model)
        given = parts if body.in_chunks else [joined(parts)]
        try:
            for _ in range(2 if continued else 1):
                body.fit(given, seed_for(self.seed, "trial"), report_nowhere, continued=continued)
        except TrainingError as error:
            if known_columns(self.training) is None:
                return False
            reason = error.__cause__ or error
            rule = f"fails on {ROWS} made-up rows of {len(self.task.columns)} columns: {type(reason).__name__}: {reason}"
            raise ConfigError(self.task.source, "training.model", self.model.name, rule) from error
        return True

    def _parts(self) -> Iterator[tuple[TrainingSamples, Weights]]:
        """Yield the rows in two parts; every class is in the first."""
        rng = rng_for(self.seed, "trial of a trainer")
        shape = (ROWS, len(self.task.columns))
        values = rng.normal(size=shape) if self.training.standardize else rng.uniform(size=shape)
        inputs: Inputs = values if self.training.precision == "64-true" else values.astype(np.float32)
        truth = np.arange(ROWS) % self.task.n_outputs if self.task.kind == "class" else rng.normal(size=ROWS)
        groups = None
        if self.task.ranks:
            truth, groups = (np.arange(ROWS) % 2).astype(np.float64), np.arange(ROWS) // _PER_GROUP
        weights = rng.uniform(0.5, 1.5, ROWS) if self.weighted else None
        for part in (slice(0, ROWS // 2), slice(ROWS // 2, ROWS)):
            own = None if groups is None else groups[part]
            rows = TrainingSamples(keys_of(1, np.arange(ROWS))[part], inputs[part], truth[part], own)
            yield rows, None if weights is None else weights[part]


def known_columns(training: TrainingSpec) -> tuple[str, ...] | None:
    """Names of the values that a trainer gets, where the spec alone tells; None where the data do.

    They are those of columns that are listed by name, and of which none is encoded or imputed.
    """
    names = [name for name in training.features if isinstance(name, str)] if isinstance(training.features, list) else []
    whole = len(names) == len(training.features) and not training.encode and not training.impute
    return tuple(names) if names and whole else None


def joined(parts: Sequence[tuple[TrainingSamples, Weights]]) -> tuple[TrainingSamples, Weights]:
    """Join parts of a training set."""
    samples, weights = zip(*parts, strict=True)
    names = ("keys", "inputs", "truth", *(() if samples[0].groups is None else ("groups",)))
    arrays = [np.concatenate([getattr(part, name) for part in samples]) for name in names]
    return TrainingSamples(*arrays), None if weights[0] is None else np.concatenate(weights)


def _shortened(spec: TrainerSpec) -> TrainerSpec:
    """Trainer with a few rounds, if it has rounds."""
    if isinstance(spec, LightGBMSpec | XGBoostSpec):
        return spec.model_copy(update={"rounds": min(spec.rounds, _ROUNDS)})
    return spec
