"""Verification and repair of a home: every recorded file is read, and made again where it can be.

Both continue after each finding. A verification writes nothing. A repair replaces a file in one rename, by one with the recorded
bytes; a killed one is started again and ends the same.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import CatalogError, ModynError
from modyn_dagster.pipeline.integrity.checks.check import Check
from modyn_dagster.pipeline.integrity.checks.dataset_files import batch_checks, deleted_list_checks
from modyn_dagster.pipeline.integrity.checks.models import model_checks, unnamed_models, weight_checks
from modyn_dagster.pipeline.integrity.checks.run_files import optimizer_checks, prediction_checks, training_set_checks
from modyn_dagster.pipeline.integrity.checks.source_files import source_checks
from modyn_dagster.pipeline.integrity.checks.unnamed_files import files_at, unnamed_files
from modyn_dagster.pipeline.integrity.finding import KINDS, Finding
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.pipeline.integrity.scope import Scope
from modyn_dagster.pipeline.platform import Platform

#: Called with the number of checked rows and of all rows.
Progress = Callable[[int, int], None]


def verify(platform: Platform, scope: Scope, pace: Pace, progress: Progress | None = None) -> Iterator[Finding]:
    """Read the recorded files of a scope, and yield what is wrong.

    Raises ``CatalogError`` when Postgres does not answer; every other error is a finding.
    """
    is_whole = scope.is_whole and "unnamed" in scope.kinds
    files = files_at(platform) if is_whole else []
    checks = planned_checks(platform, scope)
    for n, check in enumerate(checks, 1):
        yield from (finding for finding in _run(platform, check, pace) if finding.kind in scope.kinds)
        if progress is not None:
            progress(n, len(checks))
    if is_whole:
        every = checks if set(scope.kinds) == set(KINDS) else planned_checks(platform, Scope.of(platform))
        yield from unnamed_files(platform, files, [path for check in every for path in check.paths])
        yield from unnamed_models(platform)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of the repair of one file; ``reason`` says why it could not be made again."""

    finding: Finding
    is_repaired: bool
    reason: str = ""


def repair(platform: Platform, scope: Scope, pace: Pace, progress: Progress | None = None) -> Iterator[Outcome]:
    """Make the damaged and missing files of a scope again, and yield the outcome for each.

    What others are made from comes first: lists and indexes, then training set and model of each trigger, then predictions.
    """
    checks = planned_checks(platform, scope)
    for n, check in enumerate(checks, 1):
        faults = [finding for finding in _run(platform, check, pace) if finding.is_fault and finding.kind in scope.kinds]
        if faults:
            reason = "it is not derived from anything that is kept here" if check.remake is None else _remade(check.remake)
            left = {(finding.kind, finding.path): finding for finding in _run(platform, check, pace)}
            for finding in faults:
                found = left.get((finding.kind, finding.path))
                yield Outcome(finding, found is None, "" if found is None else reason or found.fault)
        if progress is not None:
            progress(n, len(checks))


def planned_checks(platform: Platform, scope: Scope) -> list[Check]:
    """List the checks of a scope, in the order of their dependencies."""
    checks: list[Check] = []
    for dataset in scope.datasets:
        for of_dataset in (deleted_list_checks, source_checks, batch_checks):
            checks += of_dataset(platform, dataset)
    seen: set[tuple[str, str]] = set()
    for run in scope.runs:
        checks += _checks_of_run(platform, run, seen)
    if scope.is_whole:
        checks += weight_checks(platform)
    for run in scope.runs:
        checks += prediction_checks(platform, run)
    return [check for check in checks if set(check.kinds) & set(scope.kinds)]


def _checks_of_run(platform: Platform, run: RunRow, seen: set[tuple[str, str]]) -> list[Check]:
    """Training set, model and optimizer states, trigger after trigger: a model needs its set, and a set earlier models."""
    checks = [
        *training_set_checks(platform, run),
        *model_checks(platform, run, seen),
        *optimizer_checks(platform, run),
    ]
    return sorted(checks, key=lambda check: check.step)


def _run(platform: Platform, check: Check, pace: Pace) -> list[Finding]:
    try:
        return check.run(pace)
    except CatalogError:
        raise
    except (ModynError, OSError) as error:
        path = str(next(iter(check.paths), Path(check.kinds[0])))
        remedy = "see to the cause and verify again"
        return [Finding(check.kinds[0], "unverified", path, str(platform.home), str(error), remedy)]


def _remade(remake: Callable[[], None]) -> str:
    """Make files again; returns the reason where that fails."""
    try:
        remake()
    except CatalogError:
        raise
    except Exception as error:  # noqa: BLE001 - user code may raise anything, and the other files are repaired all the same
        return f"{type(error).__name__}: {error}"
    return ""
