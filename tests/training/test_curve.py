import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.training.telemetry import MAX_POINTS, LossCurve, Stopwatch


@given(st.integers(1, 5000))
def test_a_curve_has_a_bounded_number_of_points_that_cover_every_step(n_steps: int) -> None:
    losses = np.sin(np.arange(n_steps))
    curve = LossCurve(n_steps)
    for loss in losses:
        curve.step(float(loss), weight=1.0)
    ends = [step for step, _ in curve.points]
    assert len(ends) <= MAX_POINTS
    assert ends[-1] == n_steps
    starts = [0, *ends[:-1]]
    for start, (end, mean) in zip(starts, curve.points, strict=True):
        assert mean == pytest.approx(losses[start:end].mean())


def test_an_epoch_loss_weighs_steps_by_their_weights() -> None:
    curve = LossCurve(3)
    curve.step(1.0, weight=3.0)
    curve.step(5.0, weight=1.0)
    curve.end_epoch()
    curve.step(4.0, weight=0.5)
    curve.end_epoch()
    assert curve.epochs == [2.0, 4.0]


def test_an_epoch_records_processor_time_and_memory_across_a_resume() -> None:
    watch = Stopwatch()
    np.linalg.svd(np.ones((300, 300)))
    watch.lap("forward")
    watch.end_epoch(10)
    assert 0 < watch.epochs[0]["cpu_seconds"] < 60
    assert 10e6 < watch.epochs[0]["memory_bytes"] < 1e12
    resumed = Stopwatch()
    resumed.load_state_dict(watch.state_dict() | {"cpu": 100.0})
    resumed.end_epoch(10)
    assert [100 <= epoch["cpu_seconds"] < 160 for epoch in resumed.epochs] == [False, True]
    resumed.load_state_dict({name: value for name, value in watch.state_dict().items() if name != "cpu"})
    assert len(resumed.epochs) == 2, "a checkpoint from before has no processor time"
