"""Trains in a child that kills itself at a step, again in one that goes on, and writes both results' bits to a folder.

``python -m tests.training.train_and_be_killed FOLDER NAME:STEP ...``: the children are forked from a process of one thread.
"""

import os
import signal
import sys
from pathlib import Path

import numpy as np

from modyn_dagster.spec.tasks.objectives import kind_of_objective
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import CheckpointFile, FastPath, Task, TrainedModel, TrainingProgress, train
from tests.training.resumable import resumable
from tests.training.table import Table


def rows(n: int, seed: int) -> Table:
    """Two classes that a line tells apart, in two columns."""
    rng = np.random.default_rng(seed)
    left, right = rng.normal(size=(2, n))
    return Table({"left": left, "right": right}, labels=(left + 0.3 * rng.normal(size=n) > right).astype(np.int64))


def trained(spec: TrainingSpec, path: Path | None, kill_at: int = 0, fast_path: FastPath = FastPath()) -> TrainedModel:  # noqa: B008 - frozen
    """The training all of this is about; it dies while batch ``kill_at`` is being told of."""

    def told(progress: TrainingProgress) -> None:
        if progress.step == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)

    return train(
        spec,
        rows(150, 1).data(np.linspace(0.5, 2, 150), fast_path),
        task=Task(kind_of_objective(spec.loss) or "class"),
        seed=7,
        threads=1,
        source="p",
        calibrate=rows(40, 2).data() if spec.early_stopping is not None else None,
        checkpoint=None if path is None else CheckpointFile(path),
        progress=told,
    )


def bits(model: TrainedModel) -> bytes:
    """Everything that must not depend on where a training was killed."""
    state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict.values())
    return state + repr((model.losses, model.curve, model.n_steps, model.calibration_losses)).encode()


def _in_a_child(spec: TrainingSpec, path: Path | None, kill_at: int, result: Path) -> int:
    child = os.fork()
    if child == 0:
        result.write_bytes(bits(trained(spec, path, kill_at)))
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def main(folder: Path, cases: list[str]) -> None:
    """See the module."""
    # What it imports takes longer than all that is trained here.
    trained(resumable("plain"), None)
    for case in cases:
        name, step = case.split(":")
        spec, path = resumable(name), folder / f"{name}.checkpoint"
        whole = _in_a_child(spec, None, 0, folder / f"{name}.whole")
        killed = _in_a_child(spec, path, int(step), folder / f"{name}.killed")
        resumed = _in_a_child(spec, path, 0, folder / f"{name}.resumed")
        if (whole, killed, resumed) != (0, -signal.SIGKILL, 0):
            raise SystemExit(f"{case}: the children ended with {whole}, {killed} and {resumed}")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
