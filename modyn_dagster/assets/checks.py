"""Checks of our assets as Dagster shows them. What they look at is in ``modyn_dagster.pipeline.checks``."""

import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

if TYPE_CHECKING:
    from modyn_dagster.pipeline.checks import CheckResult


@dataclass(frozen=True, slots=True)
class _Check:
    name: str
    blocking: bool
    description: str


#: Partitions of failed checks that a summary names.
_NAMED: Final = 20

_CHECKS: Final[Mapping[str, Sequence[_Check]]] = {
    "samples": [
        _Check("labels_present", True, "Every sample has its label."),
        _Check("in_order", False, "No sample is older than what earlier batches had reached."),
    ],
    "labels": [
        _Check("ids_known", False, "Every label names a sample that is there; the others wait for theirs."),
        _Check("ids_once", False, "No file names a sample twice."),
        _Check("after_sample", False, "No label was known before the time of its sample."),
        _Check("covered", False, "Older samples have labels about as often as younger ones, or more often."),
    ],
    "training_set": [
        _Check("not_empty", False, "The window held samples to train on; a trigger without any is skipped."),
        _Check("only_train_samples", True, "No calibrating or evaluating sample is in the training set."),
        _Check("keys_once", True, "No key is missing, repeated or outside of the window."),
        _Check("weights_sum", False, "The weights add up to the window that they stand for."),
        _Check("chances_sum", False, "So do the inverses of the chances with which samples were chosen, where these are told."),
    ],
    "model": [
        _Check("loss_finite", True, "The mean loss of every epoch is a number."),
        _Check("stored_exactly", True, "The store gives the model back: every tensor has its hash."),
    ],
    "evaluation": [
        _Check("enough_samples", False, "Every closed interval has the samples that the spec asks for."),
        _Check("champion", False, "Where both were judged, the model is at least as good as the champion before it."),
    ],
    "champion": [
        _Check(
            "better_by_test", False, "The champion passed its test, is the first model, or was chosen by a person, who is named."
        ),
    ],
}


def check_specs(asset: str, key: dg.AssetKey, partitions: dg.PartitionsDefinition | None = None) -> list[dg.AssetCheckSpec]:
    """The checks of an asset. With partitions, its pages show a result for each of them; without, the newest one.

    Dagster 1.13 asks its database once per partition and check for every look at such a page: half a minute at 10,000.
    """
    with warnings.catch_warnings():
        # Checks per partition are in preview in Dagster 1.13. Without, a replay's checks would overwrite each other.
        warnings.simplefilter("ignore", dg.PreviewWarning)
        return [
            dg.AssetCheckSpec(
                check.name, asset=key, blocking=check.blocking, description=check.description, partitions_def=partitions
            )
            for check in _CHECKS[asset]
        ]


def check_evaluations(
    key: dg.AssetKey, partition_key: str, results: Iterable["CheckResult"]
) -> Iterator[dg.AssetCheckEvaluation]:
    """Results of the checks of one partition. A failed blocking check is an error, any other a warning."""
    for result in results:
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=result.name,
            passed=result.passed,
            severity=dg.AssetCheckSeverity.ERROR if result.blocking else dg.AssetCheckSeverity.WARN,
            description=result.description,
            blocking=result.blocking,
            partition=partition_key,
            metadata=result.metadata,
        )


def check_summaries(key: dg.AssetKey, results: Mapping[str, Sequence["CheckResult"]]) -> Iterator[dg.AssetCheckEvaluation]:
    """Results of a run for checks without partitions, by partition: Dagster waits for one of each check that it planned.

    The result of a single partition is told as it is; of several it is said how many there were and which did not pass.
    """
    by_check: dict[str, list[tuple[str, CheckResult]]] = {}
    for partition, checks in results.items():
        for result in checks:
            by_check.setdefault(result.name, []).append((partition, result))
    for name, judged in by_check.items():
        failed = [partition for partition, result in judged if not result.passed]
        (_, first), *others = judged
        told = f"{len(failed)} of {len(judged)} partitions did not pass" if failed else f"all {len(judged)} partitions passed"
        counted: dict[str, Any] = {"partitions": len(judged), "not passed": ", ".join(failed[:_NAMED])}
        yield dg.AssetCheckEvaluation(
            asset_key=key,
            check_name=name,
            passed=not failed,
            severity=dg.AssetCheckSeverity.ERROR if first.blocking else dg.AssetCheckSeverity.WARN,
            description=told if others else first.description,
            blocking=first.blocking,
            metadata=counted if others else first.metadata,
        )


def check_outputs(asset: str, key: dg.AssetKey) -> Iterator[dg.Output[None]]:
    """Outputs that Dagster requires of an op for every check of its asset, evaluated or not."""
    for check in _CHECKS[asset]:
        yield dg.Output(None, output_name=dg.AssetCheckSpec(check.name, asset=key).get_python_identifier())
