"""Verification and repair of a home: every recorded file is read, and made again where it can be.

Both continue after each finding. A verification writes nothing. A repair replaces a file in one rename, by one with the recorded
bytes; a killed one is started again and ends the same.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.errors import ModynError
from modyn_dagster.pipeline.integrity.checks.check import Check
from modyn_dagster.pipeline.integrity.checks.dataset_files import batch_checks, deleted_list_checks, label_file_checks
from modyn_dagster.pipeline.integrity.checks.models import model_checks, unnamed_models, weight_checks
from modyn_dagster.pipeline.integrity.checks.run_files import optimizer_checks, prediction_checks, training_set_checks
from modyn_dagster.pipeline.integrity.checks.source_files import source_checks
from modyn_dagster.pipeline.integrity.checks.unnamed_files import settled_files, unnamed_files
from modyn_dagster.pipeline.integrity.finding import KINDS, Finding, Kind, is_of_postgres, unverified
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
    files = settled_files(platform) if is_whole else []
    checks = planned_checks(platform, scope)
    for n, check in enumerate(checks, 1):
        yield from _found(platform, scope, check, pace)
        if progress is not None:
            progress(n, len(checks))
    if is_whole:
        every = checks if set(scope.kinds) == set(KINDS) else planned_checks(platform, Scope.of(platform))
        named = [path for check in every for path in check.paths]
        yield from Check(["unnamed"], [], lambda _: unnamed_files(platform, files, named)).run(platform.home, pace)
        yield from Check(["unnamed"], [], lambda _: unnamed_models(platform)).run(platform.home, pace)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of the repair of one file; ``reason`` says why it could not be made again."""

    finding: Finding
    is_repaired: bool
    reason: str = ""


def repair(platform: Platform, scope: Scope, pace: Pace, progress: Progress | None = None) -> Iterator[Outcome]:
    """Make the damaged and missing files of a scope again, and yield the outcome for each, and for each that was not read.

    What others are made from comes first: lists and indexes, then training set and model of each trigger, then predictions.
    """
    checks = planned_checks(platform, scope)
    for n, check in enumerate(checks, 1):
        left = _found(platform, scope, check, pace)
        faults = [finding for finding in left if finding.is_fault]
        if faults and check.remake is None:
            yield from (Outcome(finding, False, "it is not derived from anything that is kept here") for finding in faults)
        elif faults and check.remake is not None:
            reason = _remade(check.remake)
            left = _found(platform, scope, check, pace)
            yield from _outcomes(faults, left, reason)
        yield from (Outcome(finding, False, "it could not be read") for finding in left if finding.state == "unverified")
        if progress is not None:
            progress(n, len(checks))


def _found(platform: Platform, scope: Scope, check: Check, pace: Pace) -> list[Finding]:
    """Findings of the kinds of a scope; those of a check that broke off are about all of its kinds."""
    found = check.run(platform.home, pace)
    return [finding for finding in found if finding.kind in scope.kinds or finding.state == "unverified"]


def _outcomes(faults: Sequence[Finding], left: Sequence[Finding], reason: str) -> Iterator[Outcome]:
    """Compare the faults of a check with what a second run found; no file counts as repaired that this run could not read."""
    places = {(finding.kind, finding.path) for finding in faults}
    later = [finding for finding in left if finding.is_fault and (finding.kind, finding.path) not in places]
    unread = [finding for finding in left if finding.state == "unverified"]
    for fault in faults:
        # What is gone by now has another path than what was damaged, and so has a store that does not answer.
        still = [finding for finding in left if finding.kind == fault.kind and (finding.path == fault.path or finding in later)]
        why = reason or "".join(finding.fault for finding in (still + unread)[:1])
        yield Outcome(fault, not why, why)
    yield from (Outcome(finding, False, reason or finding.fault) for finding in later)


def planned_checks(platform: Platform, scope: Scope) -> list[Check]:
    """List the checks of a scope. What cannot be planned, as a model store that nothing opens, is a check that says so.

    Raises ``CatalogError`` when Postgres does not answer.
    """
    checks: list[Check] = []
    for dataset in scope.datasets:
        checks += deleted_list_checks(platform, dataset)
        checks += _or_unverified("sources", f"dataset {dataset.name}", source_checks(platform, dataset))
        checks += batch_checks(platform, dataset)
        checks += label_file_checks(platform, dataset)
    seen: set[tuple[str, str]] = set()
    for run in scope.runs:
        checks += _checks_of_run(platform, run, seen)
    if scope.is_whole:
        checks += _or_unverified("weights", "cache", weight_checks(platform))
    for run in scope.runs:
        checks += prediction_checks(platform, run)
    return [check for check in checks if set(check.kinds) & set(scope.kinds)]


def _checks_of_run(platform: Platform, run: RunRow, seen: set[tuple[str, str]]) -> list[Check]:
    """Training set, model and optimizer states, trigger after trigger: a model needs its set, and a set earlier models."""
    checks = [
        *training_set_checks(platform, run),
        *_or_unverified("models", run.title, model_checks(platform, run, seen)),
        *_or_unverified("optimizers", run.title, optimizer_checks(platform, run)),
    ]
    return sorted(checks, key=lambda check: check.step)


def _or_unverified(kind: Kind, owner: str, checks: Iterable[Check]) -> Iterator[Check]:
    """Checks as planned up to an error, and one that tells it.

    Not for those that list paths below the home folder: files that the plan lacks there would count as unnamed.
    """
    try:
        yield from checks
    except (ModynError, OSError) as error:
        finding = unverified(kind, kind, owner, error)
        yield Check([kind], [], lambda _: iter([finding]))


def _remade(remake: Callable[[], None]) -> str:
    """Make files again; returns the reason where that fails."""
    try:
        remake()
    except Exception as error:
        # User code may raise anything, and the other files are repaired all the same.
        if is_of_postgres(error):
            raise
        return f"{type(error).__name__}: {error}"
    return ""
