"""Epochs of a training, resumable after any optimizer step."""

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import torch

from modyn_dagster.progress import ProgressCallback, TrainingProgress
from modyn_dagster.reproducibility.determinism import generator_states, set_generator_states
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import Checkpointer
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.loop.final_weights import EarlyStopping
from modyn_dagster.training.loop.sampling import Sampling
from modyn_dagster.training.loop.schedulers import budget_forbids, length_of
from modyn_dagster.training.loop.steps import Steps
from modyn_dagster.training.team.team import Team
from modyn_dagster.training.telemetry import LossCurve, Stopwatch


@dataclass
class Cursor:
    """Position of a training: epoch, its finished batches, and samples trained on in total."""

    epoch: int = 0
    batch: int = 0
    n_samples: int = 0


class Epochs:
    """Loop over the epochs and batches of a training.

    Args:
        spec: spec of the training.
        sampler: source of the batches.
        steps: optimizer steps on the batches.
        stopping: early stopping; None without.
        device: device of the training.
        watch: stopwatch of the stages.
        progress: called after every batch.
        team: ranks that train together, each with generators of its own; None for one process.
    """

    def __init__(
        self,
        spec: TrainingSpec,
        sampler: Sampling,
        steps: Steps,
        stopping: EarlyStopping | None,
        *,
        device: torch.device,
        watch: Stopwatch,
        progress: ProgressCallback | None,
        team: Team | None = None,
    ) -> None:
        self._spec, self._sampler, self._steps, self._stopping = spec, sampler, steps, stopping
        self._device, self._watch, self._progress, self._team = device, watch, progress, team
        length = length_of(sampler.sizes, spec)
        steps.schedule(length)
        self.curve, self.cursor, self._stopped = LossCurve(length.n_batches), Cursor(), False

    def run(self, saver: Checkpointer) -> None:
        """Run the remaining epochs and write checkpoints."""
        while not self._stopped and self.cursor.epoch < self._spec.epochs and not self._budget_exhausted(1):
            with closing(self._sampler.epoch(self.cursor.epoch, self._watch, self.cursor.batch)) as batches:
                for batch in batches:
                    self._watch.lap("data")
                    if self._budget_exhausted(len(batch)):
                        self._stopped = True
                        break
                    self._learn(batch)
                    if self._steps.n_pending == 0:
                        saver.after(self._steps.n_steps, self.state_dict)
            # A budget may end an epoch before its first batch.
            if self.cursor.batch:
                self._end_epoch()
        self.curve.close()
        if self._stopping is not None:
            self._stopping.restore()
        elif self._steps.average is not None:
            self._steps.average.apply()

    def state_dict(self) -> dict[str, Any]:
        """Return the state that the rest of the training depends on, between two optimizer steps."""
        state = {
            "place": asdict(self.cursor),
            "curve": self.curve.state_dict(),
            "watch": self._watch.state_dict(),
            "sampler": self._sampler.state_dict(),
            "steps": self._steps.state_dict(),
            "stopping": None if self._stopping is None else self._stopping.state_dict(),
            "generators": self._generator_states(),
        }
        return self._steps.whole(state, kept=self._team is None or self._team.index == 0)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue from a state."""
        self.cursor = Cursor(**state["place"])
        self.curve.load_state_dict(state["curve"])
        self._watch.load_state_dict(state["watch"])
        self._sampler.load_state_dict(state["sampler"])
        self._steps.load_state_dict(state["steps"])
        if self._stopping is not None:
            self._stopping.load_state_dict(state["stopping"])
        generators = state["generators"]
        set_generator_states(generators if self._team is None else generators[self._team.index], self._device)

    def _generator_states(self) -> Any:
        own = generator_states(self._device)
        return own if self._team is None else self._team.states(own)

    def _budget_exhausted(self, size: int) -> bool:
        return budget_forbids(self._spec, self._steps.n_steps, self.cursor.n_samples, size)

    def _learn(self, batch: Batch) -> None:
        loss = self._steps.step(batch, self.curve.n_seen + 1, self._watch)
        self.curve.step(loss, weight=batch.weight)
        self.cursor.batch += 1
        self.cursor.n_samples += len(batch)
        if self._sampler.listens:
            self._sampler.trained(self._steps.gradients(batch))
            self._watch.lap("select")
        if self._progress is not None:
            self._progress(
                TrainingProgress(self.cursor.epoch + 1, self._spec.epochs, self.curve.n_seen, self.curve.n_steps, loss)
            )

    def _end_epoch(self) -> None:
        self._steps.end_epoch(self._watch)
        self.curve.end_epoch()
        self.cursor.epoch, self.cursor.batch = self.cursor.epoch + 1, 0
        if self._stopping is not None:
            self._stopped = self._stopping.end_epoch() or self._stopped
            self._watch.lap("calibrate")
        self._watch.end_epoch(self.cursor.n_samples - sum(epoch["n_samples"] for epoch in self._watch.epochs))
