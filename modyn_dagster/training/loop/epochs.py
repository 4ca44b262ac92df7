"""The walk through the epochs of a training: it can be left after any optimizer step, and gone on with there."""

from contextlib import closing
from dataclasses import asdict, dataclass
from typing import Any

import torch

from modyn_dagster.determinism import generator_states, set_generator_states
from modyn_dagster.progress import ProgressCallback, TrainingProgress
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.checkpoint.checkpointer import Checkpointer
from modyn_dagster.training.inputs.batch import Batch
from modyn_dagster.training.loop.final_weights import EarlyStopping
from modyn_dagster.training.loop.sampling import Sampling
from modyn_dagster.training.loop.schedulers import length_of, spent
from modyn_dagster.training.loop.steps import Steps
from modyn_dagster.training.telemetry import LossCurve, Stopwatch


@dataclass
class Place:
    """Position of a training: epoch, finished batches of it, and samples trained on in all."""

    epoch: int = 0
    batch: int = 0
    n_samples: int = 0


class Epochs:
    """One training.

    Args:
        spec: of the training.
        sampler: hands out its batches.
        steps: learns from them.
        stopping: ends it early; None: nothing does.
        device: that trains.
        watch: of its stages.
        progress: is told of every batch.
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
    ) -> None:
        self._spec, self._sampler, self._steps, self._stopping = spec, sampler, steps, stopping
        self._device, self._watch, self._progress = device, watch, progress
        length = length_of(sampler.sizes, spec)
        steps.schedule(length)
        self.curve, self.place, self._over = LossCurve(length.n_batches), Place(), False

    def walk(self, saver: Checkpointer) -> None:
        """All epochs that are left, writing checkpoints on the way."""
        while not self._over and self.place.epoch < self._spec.epochs and not self._spent(1):
            with closing(self._sampler.epoch(self.place.epoch, self._watch, self.place.batch)) as batches:
                for batch in batches:
                    self._watch.lap("data")
                    if self._spent(len(batch.targets)):
                        self._over = True
                        break
                    self._learn(batch)
                    if self._steps.n_pending == 0:
                        saver.after(self._steps.n_steps, self.state_dict)
            # A budget may have ended it before its first batch.
            if self.place.batch:
                self._end_epoch()
        self.curve.close()
        if self._stopping is not None:
            self._stopping.restore()
        elif self._steps.average is not None:
            self._steps.average.apply()

    def state_dict(self) -> dict[str, Any]:
        """All that the rest of the training depends on, between two optimizer steps."""
        return {
            "place": asdict(self.place),
            "curve": self.curve.state_dict(),
            "watch": self._watch.state_dict(),
            "sampler": self._sampler.state_dict(),
            "steps": self._steps.state_dict(),
            "stopping": None if self._stopping is None else self._stopping.state_dict(),
            "generators": generator_states(self._device),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where another one was."""
        self.place = Place(**state["place"])
        self.curve.load_state_dict(state["curve"])
        self._watch.load_state_dict(state["watch"])
        self._sampler.load_state_dict(state["sampler"])
        self._steps.load_state_dict(state["steps"])
        if self._stopping is not None:
            self._stopping.load_state_dict(state["stopping"])
        set_generator_states(state["generators"], self._device)

    def _spent(self, size: int) -> bool:
        return spent(self._spec, self._steps.n_steps, self.place.n_samples, size)

    def _learn(self, batch: Batch) -> None:
        loss = self._steps.step(batch, self.curve.n_seen + 1, self._watch)
        self.curve.step(loss, weight=batch.weight)
        self.place.batch += 1
        self.place.n_samples += len(batch.targets)
        if self._sampler.listens:
            self._sampler.trained(self._steps.gradients(batch))
            self._watch.lap("select")
        if self._progress is not None:
            self._progress(TrainingProgress(self.place.epoch + 1, self._spec.epochs, self.curve.n_seen, self.curve.n_steps, loss))

    def _end_epoch(self) -> None:
        self._steps.end_epoch(self._watch)
        self.curve.end_epoch()
        self.place.epoch, self.place.batch = self.place.epoch + 1, 0
        if self._stopping is not None:
            self._over = self._stopping.end_epoch() or self._over
            self._watch.lap("calibrate")
        self._watch.end_epoch(self.place.n_samples - sum(epoch["n_samples"] for epoch in self._watch.epochs))
