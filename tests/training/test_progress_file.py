"""Progress that another process tells through a file."""

from pathlib import Path

from modyn_dagster.training import TrainingProgress
from modyn_dagster.training.progress_file import followed_progress, progress_teller


def test_progress_arrives_in_order_and_the_last_step_always() -> None:
    told: list[TrainingProgress] = []
    with followed_progress(told.append) as path, progress_teller(path) as tell:
        assert tell is not None
        for step in range(1, 1001):
            tell(TrainingProgress(1, 1, step, 1000, 1 / step))
    assert told[-1] == TrainingProgress(1, 1, 1000, 1000, 0.001)
    assert [each.step for each in told] == sorted({each.step for each in told})
    assert path is not None
    assert not path.parent.exists()


def test_without_a_callback_or_on_another_machine_nothing_is_told(tmp_path: Path) -> None:
    with followed_progress(None) as path, progress_teller(path) as tell:
        assert (path, tell) == (None, None)
    with progress_teller(tmp_path / "elsewhere" / "progress") as tell:
        assert tell is None


def test_without_a_step_nothing_arrives() -> None:
    told: list[TrainingProgress] = []
    with followed_progress(told.append):
        pass
    assert told == []
