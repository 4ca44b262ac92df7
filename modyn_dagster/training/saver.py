"""When the state of a training is written down."""

import time
from collections.abc import Callable
from typing import Any

from modyn_dagster.spec.stepping import CheckpointSpec
from modyn_dagster.training.checkpoint import CheckpointFile
from modyn_dagster.training.checkpoint_parts import LOSSES, TRAINING, Part


class Saver:
    """Writes a checkpoint every so many steps or minutes, and reads it at the beginning.

    Args:
        file: where to; None: nowhere.
        spec: how often; None: never, and what is there is not read.
        fingerprint: of the training.
    """

    def __init__(self, file: CheckpointFile | None, spec: CheckpointSpec | None, fingerprint: Callable[[], str]) -> None:
        self._file, self._spec = None if spec is None else file, spec
        self._fingerprint = fingerprint() if self._file is not None else ""
        self._saved_at, self._step = time.monotonic(), 0

    def load(self) -> Any | None:
        """The state of the last checkpoint; None at the beginning of a training."""
        return None if self._file is None else self._file.load(self._fingerprint)

    def kept(self, part: Part, find: Callable[[CheckpointFile | None], Any]) -> Any:
        """What ``find`` finds out, at once where it is known from before a kill; it goes on from the file that it is given."""
        if self._file is None:
            return find(None)
        done, under_way = self._file.beside(LOSSES[part]), self._file.beside(TRAINING[part])
        found = done.load(self._fingerprint)
        if found is None:
            found = find(under_way)
            done.save(self._fingerprint, found)
            under_way.remove()
        return found

    def after(self, n_steps: int, state: Callable[[], Any]) -> None:
        """So many optimizer steps are over."""
        if self._file is None or n_steps == self._step or not self._is_due(n_steps):
            return
        self._file.save(self._fingerprint, state())
        self._saved_at, self._step = time.monotonic(), n_steps

    def _is_due(self, n_steps: int) -> bool:
        spec = self._spec
        if spec is None:
            return False
        if spec.steps is not None and n_steps % spec.steps == 0:
            return True
        return spec.minutes is not None and time.monotonic() - self._saved_at >= 60 * spec.minutes
