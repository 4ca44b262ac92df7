"""Checks of assets and of the arrival of data: plain functions that Dagster assets and replay share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.batches import BatchRow, newest_arrival
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.models import ModelRow
from modyn_dagster.errors import CheckFailed
from modyn_dagster.evaluation.composite.champion import Verdict
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluationSpec


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of one check of one partition. A blocking check that failed stops everything downstream."""

    name: str
    passed: bool
    blocking: bool
    description: str
    metadata: dict[str, Any] = field(default_factory=dict)


def require_passed(checks: Sequence[CheckResult]) -> None:
    """Raise ``CheckFailed`` for the first blocking check that did not pass."""
    for check in checks:
        if check.blocking and not check.passed:
            raise CheckFailed(check.name, check.description)


def labels_present(spec: DatasetSpec, batch: BatchRow) -> CheckResult:
    """Check that every sample of a batch has its label."""
    n_samples = int(batch.n_samples or 0)
    if spec.label is None:
        return CheckResult("labels_present", True, False, "the dataset has no labels")
    if spec.label.arrives == "later":
        return CheckResult("labels_present", True, False, "labels arrive later: the checks of `labels` tell how many there are")
    labelled = sum((batch.label_counts or {}).values()) if spec.label.kind == "class" else n_samples
    text = f"{labelled} of {n_samples} samples have a label"
    return CheckResult("labels_present", labelled == n_samples, True, text, {"labelled": labelled, "samples": n_samples})


def samples_in_order(batch: BatchRow, n_late: int) -> CheckResult:
    """Check that no sample of a batch is older than the newest sample of earlier batches; a warning, not an error."""
    text = f"{n_late} of {batch.n_samples} samples are older than what earlier batches had reached"
    if n_late:
        text += "; they count from here on and change nothing that was decided"
    return CheckResult("in_order", n_late == 0, False, text, {"late": n_late, "samples": int(batch.n_samples or 0)})


def loss_finite(model: ModelRow) -> CheckResult:
    """Check that the mean loss of every epoch is a finite number."""
    last = model.losses[-1] if model.losses else math.nan
    passed = bool(model.losses) and all(math.isfinite(loss) for loss in model.losses)
    return CheckResult("loss_finite", passed, True, f"mean loss of the last epoch: {last:.6g}", {"last_loss": float(last)})


def enough_evaluation_samples(spec: EvaluationSpec, cells: Sequence[EvaluationRow]) -> CheckResult:
    """Check that every closed interval has the number of samples that the spec asks for."""
    counts = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in cells}
    thin = sum(1 for count in counts.values() if count < spec.min_samples)
    text = f"{thin} of {len(counts)} intervals have fewer than {spec.min_samples} samples"
    return CheckResult("enough_samples", bool(counts) and thin == 0, False, text, {"intervals": len(counts), "thin": thin})


def champion_check(verdict: Verdict) -> CheckResult:
    """Check that a model is at least as good as the champion before it: the gate of the alias ``champion``."""
    counts = {} if verdict.champion is None else {"champion": verdict.champion}
    return CheckResult("champion", verdict.promoted, False, verdict.reason, counts)


FRESH = "fresh"


def freshness(platform: Platform, dataset: str, now: datetime | None = None) -> CheckResult:
    """Check the age of the newest ingested batch against ``freshness`` of its dataset.

    A batch arrives when it is registered, by the wall clock (of the database, unless ``now`` is given). A batch that failed
    or is still open does not count. Before the first batch, the dataset's own age counts.
    """
    spec = platform.dataset(dataset)
    if spec.freshness is None:
        return CheckResult(FRESH, True, False, f"{dataset} says nothing about freshness")
    with platform.transaction() as conn:
        newest, arrived = newest_arrival(conn, ensure_dataset(conn, spec).id)
        moment = now if now is not None else conn.execute(sa.select(sa.func.now())).scalar_one()
    age = max(moment - arrived, timedelta())
    maximum = timedelta(seconds=seconds_of(spec.freshness.maximum))
    since = f"since batch {newest} arrived" if newest is not None else "since the dataset was made, for no batch ever arrived"
    text = f"{duration_text(age)} {since}, at most {spec.freshness.maximum} are fine"
    passed = age <= maximum
    seconds = {"age_seconds": age.total_seconds(), "maximum_seconds": maximum.total_seconds()}
    values = {**seconds, "newest_batch": newest or "none", "arrived": arrived.isoformat()}
    return CheckResult(FRESH, passed, False, text if passed else f"no data for {duration_text(age)}: {text}", values)


def duration_text(age: timedelta) -> str:
    """Format a length of time in its two largest units.

    >>> duration_text(timedelta(days=2, hours=3, minutes=4)), duration_text(timedelta(seconds=59.9))
    ('2 d 3 h', '59 s')
    """
    seconds = int(age.total_seconds())
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((i for i, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"
