"""Child process: forged prediction files, whose checksums are right whatever is in them, in little memory."""

import resource
from pathlib import Path

import numpy as np

from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.predictions.files import read_predictions, write_predictions
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.spec.training import TaskKind
from modyn_dagster.values.digest import checksum_of
from tests.fastpath.damaging import child, run

#: Address space beyond what the process has at its beginning.
_ROOM = 512 << 20


def sound(kind: TaskKind, n: int, n_outputs: int = 3, n_targets: int = 0) -> Predictions:
    """Predictions for n samples, some of which have no truth and so no loss; of several targets each may be missing."""
    rng = np.random.default_rng(0)
    truth = rng.integers(-1, 3, n) if kind == "class" else np.where(rng.random(n) < 0.3, np.nan, rng.normal(size=n))
    missing = truth < 0 if kind == "class" else np.isnan(truth)
    losses = np.where(missing, np.nan, rng.random(n)).astype(np.float32)
    if n_targets:
        truth = np.where(rng.random((n, n_targets)) < 0.2, np.nan, rng.normal(size=(n, n_targets)))
    times = np.arange(n).astype("datetime64[us]")
    outputs = rng.normal(size=(n, n_outputs)).astype(np.float32)
    return Predictions(kind, np.arange(0, 3 * n, 3, dtype=np.uint64), times, truth, outputs, losses)


def predictions(folder: Path, seed: int, n: int, kind: TaskKind = "class", n_targets: int = 0) -> None:
    path = folder / "p.arrow"
    parts = [sound(kind, 40, n_targets=n_targets).take(slice(start, start + 10)) for start in range(0, 40, 10)]
    write_predictions(path, parts, kind=kind, n_outputs=3, n_targets=n_targets)
    size = path.stat().st_size
    read_predictions(
        path, checksum_of(path)
    )  # Arrow starts its threads here: it aborts where the room no longer suffices for their stacks
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + _ROOM, used + _ROOM))

    def attempt(unharmed: bool) -> None:
        try:
            found = read_predictions(path, checksum_of(path))
        except CorruptFile as error:
            assert error.path == str(path)
            assert not unharmed
            return
        columns = (found.keys, found.times, found.truth, found.outputs, found.losses)
        assert sum(column.nbytes for column in columns) <= 2 * (size + 200)
        assert {len(column) for column in columns} == {len(found)}
        assert (np.diff(found.keys.astype(object)) > 0).all()
        assert found.outputs.shape == (len(found), found.outputs.shape[1])
        if unharmed:
            np.testing.assert_array_equal(found.outputs, sound(kind, 40, n_targets=n_targets).outputs)

    run(path, seed, n, attempt)


def targets(folder: Path, seed: int, n: int) -> None:
    predictions(folder, seed, n, "target")


def several_targets(folder: Path, seed: int, n: int) -> None:
    predictions(folder, seed, n, "target", 2)


if __name__ == "__main__":
    child({"predictions": predictions, "targets": targets, "several_targets": several_targets})
