"""Files written behind one's back are those that would have been written on the spot."""

from pathlib import Path

import numpy as np
import pytest

from modyn_dagster.errors import WriteFailed
from modyn_dagster.evaluation import Predictions, read_predictions, write_predictions
from modyn_dagster.evaluation.predictions.files import PredictionWriter
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.training import TaskKind


def some(n: int, begin: int = 0) -> Predictions:
    rng = np.random.default_rng(n)
    keys = keys_of(0, np.arange(begin, begin + n))
    times = np.arange(n).astype("datetime64[us]")
    outputs = rng.normal(size=(n, 2)).astype(np.float32)
    return Predictions("class", keys, times, rng.integers(0, 2, n), outputs, rng.random(n).astype(np.float32))


def test_files_and_what_is_known_of_them_are_the_same(tmp_path: Path) -> None:
    contents = [[some(5), some(7, 5)], [some(3)], [], [some(4000)]]
    with PredictionWriter() as writer:
        made = [writer.write(tmp_path / f"{i}.arrow", parts, kind="class", n_outputs=2) for i, parts in enumerate(contents)]
    for i, (parts, written) in enumerate(zip(contents, made, strict=True)):
        assert written.result() == write_predictions(tmp_path / "plain.arrow", parts, kind="class", n_outputs=2)
        assert (tmp_path / f"{i}.arrow").read_bytes() == (tmp_path / "plain.arrow").read_bytes()


def test_a_file_that_cannot_be_written_is_an_error_where_it_is_asked_for_and_stops_no_other(tmp_path: Path) -> None:
    (tmp_path / "blocked").write_text("a file, not a folder")
    with PredictionWriter() as writer:
        bad = writer.write(tmp_path / "blocked" / "p.arrow", [some(3)], kind="class", n_outputs=2)
        good = writer.write(tmp_path / "good.arrow", [some(3)], kind="class", n_outputs=2)
    with pytest.raises(WriteFailed):
        bad.result()
    assert len(read_predictions(tmp_path / "good.arrow", good.result().checksum)) == 3


@pytest.mark.parametrize("kind", ["class", "target"])
def test_no_predictions_are_those_of_a_file_of_none(tmp_path: Path, kind: TaskKind) -> None:
    written = write_predictions(tmp_path / "p.arrow", [], kind=kind, n_outputs=3)
    read, empty = read_predictions(tmp_path / "p.arrow", written.checksum), Predictions.empty(kind, 3)
    for name in ("keys", "times", "truth", "outputs", "losses"):
        one, other = getattr(read, name), getattr(empty, name)
        assert (one.shape, one.dtype) == (other.shape, other.dtype)
