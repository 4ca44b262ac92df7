"""Pipelines for reports, made up of random numbers: models that know best what is near in time."""

from collections.abc import Sequence

import numpy as np

from modyn_dagster.evaluation.composite.confusion import CompositeConfusion, Confusion, RunConfusion
from modyn_dagster.reporting.page.data import DecisionSeries, PipelineRecord, ReportData
from modyn_dagster.reproducibility.randomness import rng_for

DAY = np.timedelta64(86_400_000_000, "us")
BEGIN = np.datetime64("1930-01-01", "us")


def a_report(
    models: Sequence[int],
    n_intervals: int,
    metrics: tuple[str, ...] = ("accuracy", "log_loss"),
    *,
    seeds: int = 1,
    state: str = "finished",
    missing: tuple[str, ...] = (),
) -> ReportData:
    """Pipelines with so many models each, ``seeds`` of them belonging together; intervals of a year."""
    starts = BEGIN + np.arange(n_intervals) * 365 * DAY
    records = [_record(place, n, n_intervals, metrics, seeds, state) for place, n in enumerate(models)]
    return ReportData("Pipelines of made_up", starts, starts + 365 * DAY, starts, metrics, tuple(records), missing)


def _record(place: int, n: int, n_intervals: int, metrics: tuple[str, ...], seeds: int, state: str) -> PipelineRecord:
    rng = rng_for(7, "report", place)
    days = np.sort(rng.integers(30, max(31, n_intervals * 365), n))
    age = np.arange(n_intervals)[None, :] - days[:, None] / 365
    matrices = {}
    for metric in metrics:
        score = np.clip(0.92 - 0.012 * np.abs(age) * (1 + place / 10) + rng.normal(0, 0.02, age.shape), 0, 1)
        matrices[metric] = -np.log(score + 0.01) if metric == "log_loss" else score
    times = BEGIN + np.arange(0, n_intervals * 365, 200) * DAY
    scores = np.abs(rng.normal(0.05, 0.015, len(times)))
    decisions = DecisionSeries(times, scores, np.full(len(times), 0.07), scores > 0.07)
    group = f"pipeline_{place // seeds:02d}"
    return PipelineRecord(
        label=group if seeds == 1 else f"{group} (seed {place % seeds})",
        group=group,
        state=state,
        train_ends=BEGIN + days * DAY,
        n_samples=rng.integers(100, 5000, n),
        seconds={stage: rng.random(n) * top for stage, top in (("select", 1), ("train", 5), ("evaluate", 2))},
        matrices=matrices,
        other_seconds={"decide": 1.5},
        decisions=decisions if place % 2 == 0 and len(times) else None,
        n_bytes=1_000_000 * n,
        lows={metric: values - 0.03 for metric, values in matrices.items()},
        highs={metric: values + 0.03 for metric, values in matrices.items()},
        slices={f"school={name}": {m: values - 0.1 * i for m, values in matrices.items()} for i, name in enumerate("AB")},
        slice_samples={f"school={name}": np.full(n_intervals, 50, np.int64) for name in "AB"},
        confusion=a_confusion(3),
    )


def a_confusion(n_classes: int) -> RunConfusion:
    """Classes of which each is predicted right nine times, by the trained model 18 times, and once as the next one."""
    truth = np.repeat(np.arange(n_classes), 2)
    predicted = (truth + np.tile([0, 1], n_classes)) % n_classes
    parts = {"active": np.where(truth == predicted, 9, 1), "trained": np.where(truth == predicted, 18, 1)}
    counted = {name: CompositeConfusion(Confusion(truth, predicted, n), 4, 5) for name, n in parts.items()}
    return RunConfusion(tuple(f"class <{n}>" for n in range(n_classes)), counted)
