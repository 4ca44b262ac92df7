import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.training.telemetry import MAX_POINTS, LossCurve


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
