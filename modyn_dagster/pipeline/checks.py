"""Checks of the assets: plain functions that the Dagster assets and the replay share."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.evaluations import EvaluationRow
from modyn_dagster.catalog.models import ModelRow
from modyn_dagster.catalog.training_sets import TrainingSetRow
from modyn_dagster.errors import CheckFailed
from modyn_dagster.evaluation.champion import Verdict
from modyn_dagster.ingestion.split import CALIBRATE, EVALUATE
from modyn_dagster.pipeline.view import DatasetView
from modyn_dagster.selection import TrainingSet
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.evaluation import EvaluationSpec


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one partition; a blocking one that failed stops what comes downstream."""

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
    """Every sample of a batch has its label."""
    n_samples = int(batch.n_samples or 0)
    if spec.label is None:
        return CheckResult("labels_present", True, False, "the dataset has no labels")
    labelled = sum((batch.label_counts or {}).values()) if spec.label.kind == "class" else n_samples
    text = f"{labelled} of {n_samples} samples have a label"
    return CheckResult("labels_present", labelled == n_samples, True, text, {"labelled": labelled, "samples": n_samples})


def in_order(batch: BatchRow, n_late: int) -> CheckResult:
    """No sample of a batch is older than what earlier batches had reached; worth a look, but not an error."""
    text = f"{n_late} of {batch.n_samples} samples are older than what earlier batches had reached"
    if n_late:
        text += "; they count from here on and change nothing that was decided"
    return CheckResult("in_order", n_late == 0, False, text, {"late": n_late, "samples": int(batch.n_samples or 0)})


def training_set_not_empty(row: TrainingSetRow) -> CheckResult:
    """A trigger with an empty training set is skipped; worth a look, but not an error."""
    text = row.details.get("skipped") or f"{row.n_samples} samples of a window of {row.n_pool}"
    return CheckResult("not_empty", row.n_samples > 0, False, text, {"samples": row.n_samples, "window": row.n_pool})


def only_train_samples(view: DatasetView, training_set: TrainingSet) -> CheckResult:
    """No calibrating or evaluating key was selected: every partition is looked at against the dataset's split."""
    leaked = {"calibrate": 0, "evaluate": 0}
    for partition in training_set.partitions():
        sides = view.sides(partition.keys)
        leaked["calibrate"] += int(np.count_nonzero(sides == CALIBRATE))
        leaked["evaluate"] += int(np.count_nonzero(sides == EVALUATE))
    total = sum(leaked.values())
    text = f"{total} keys of the calibrate or evaluate split are in the training set"
    return CheckResult("only_train_samples", total == 0, True, text, dict(leaked))


def loss_finite(model: ModelRow) -> CheckResult:
    """The mean loss of every epoch is a number."""
    last = model.losses[-1] if model.losses else math.nan
    passed = bool(model.losses) and all(math.isfinite(loss) for loss in model.losses)
    return CheckResult("loss_finite", passed, True, f"mean loss of the last epoch: {last:.6g}", {"last_loss": float(last)})


def enough_evaluation_samples(spec: EvaluationSpec, cells: Sequence[EvaluationRow]) -> CheckResult:
    """Every closed interval has the samples that the spec asks for."""
    counts = {(cell.interval_start, cell.interval_end): cell.n_samples for cell in cells}
    thin = sum(1 for count in counts.values() if count < spec.min_samples)
    text = f"{thin} of {len(counts)} intervals have fewer than {spec.min_samples} samples"
    return CheckResult("enough_samples", bool(counts) and thin == 0, False, text, {"intervals": len(counts), "thin": thin})


def champion(verdict: Verdict) -> CheckResult:
    """The model is at least as good as the champion before it: the gate of the alias ``champion``."""
    counts = {"champion": verdict.champion}
    return CheckResult("champion", verdict.promoted, False, verdict.reason, counts)
