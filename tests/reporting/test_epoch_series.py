"""Epochs of a training as series of MLflow."""

from datetime import UTC, datetime
from typing import Any

from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.reporting.mlflow.series import MOST_LOSSES, epoch_series, system_series
from modyn_dagster.reporting.mlflow.stream_time import milliseconds

AT = datetime(2024, 1, 1, tzinfo=UTC)


def model_of(training: dict[str, Any]) -> ModelRow:
    return ModelRow(1, 1, 0, 9, "m", None, 10, AT, AT, {}, [0.5, 0.4], [], AT, None, training)


def test_every_epoch_has_its_throughput_and_the_seconds_of_its_stages() -> None:
    epochs = [
        {"n_samples": 100, "seconds": {"data": 1.0, "step": 4.0}},
        {"n_samples": 60, "seconds": {"data": 1.0, "select": 1.0, "step": 2.0}},
    ]
    series = epoch_series(model_of({"epochs": epochs, "calibration_losses": [0.9, 0.8]}))
    found = {name: [(point.step, point.value) for point in points] for name, points in series.items()}
    assert found == {
        "training/samples_per_second": [(1, 20.0), (2, 15.0)],
        "training/seconds_data": [(1, 1.0), (2, 1.0)],
        "training/seconds_select": [(2, 1.0)],
        "training/seconds_step": [(1, 4.0), (2, 2.0)],
        "training/calibration_loss": [(1, 0.9), (2, 0.8)],
    }


def test_models_of_before_have_none() -> None:
    assert epoch_series(model_of({})) == {}


def test_many_epochs_are_thinned_evenly() -> None:
    epochs = [{"n_samples": 1, "seconds": {"step": 1.0}}] * 1000
    series = epoch_series(model_of({"epochs": epochs}))["training/seconds_step"]
    assert len(series) == MOST_LOSSES
    assert (series[0].step, series[-1].step) == (1, 1000)


def test_the_load_of_a_training_is_shown_by_epoch_over_the_clock() -> None:
    epochs = [
        {"n_samples": 10, "seconds": {"step": 4.0}, "cpu_seconds": 6.0, "memory_bytes": 200_000_000},
        {"n_samples": 10, "seconds": {"step": 2.0}, "cpu_seconds": 1.0, "memory_bytes": 300_000_000},
    ]
    model = model_of({"epochs": epochs})
    end = milliseconds(model.created_at)
    assert system_series(model) == {
        "system/process_memory_megabytes": [(1, end - 2000, 200.0), (2, end, 300.0)],
        "system/process_cpu_utilization_percentage": [(1, end - 2000, 150.0), (2, end, 50.0)],
    }
    assert system_series(model_of({"epochs": [{"n_samples": 10, "seconds": {"step": 4.0}}]})) == {}
