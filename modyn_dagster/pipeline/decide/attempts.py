"""Attempts of a trigger: claim one, give it up, fail for good."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import sqlalchemy as sa

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.catalog.deletions import is_deleted
from modyn_dagster.catalog.results.models import model_uses
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import (
    TriggerRow,
    claim,
    fail,
    get_trigger,
    list_triggers,
    raise_attempt,
    release,
    unfinished_trigger,
)
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import (
    CatalogError,
    CorruptFile,
    DeletedKey,
    LostClaim,
    RunError,
    StaleRun,
    StillFailing,
    TriggerFailed,
    UnknownModel,
    WithdrawnModel,
    is_permanent,
    is_transient,
)
from modyn_dagster.ingestion.deletion.delete import is_replaced
from modyn_dagster.pipeline.context import TriggerContext, load_context
from modyn_dagster.pipeline.platform import Platform


def claim_context(
    platform: Platform, trigger: TriggerRow, dagster_run_id: str, view: DatasetView | None = None
) -> TriggerContext:
    """Claim the current attempt of a trigger for one Dagster run, and read the context that its stages start from.

    A trained trigger is left as it is: working on it again is a check.

    Raises:
        LostClaim: another run works on it.
        RunError: it failed for good, or was skipped.
    """
    with platform.transaction() as conn:
        claimed = _claim(conn, trigger, dagster_run_id)
        return load_context(conn, platform, get_run(conn, claimed.run_id), claimed, view)


def _claim(conn: sa.Connection, trigger: TriggerRow, dagster_run_id: str) -> TriggerRow:
    current = get_trigger(conn, trigger.id, lock=True)
    if current.state == "trained":
        return current
    if current.state in ("failed", "skipped"):
        reason = current.error or "its training set was empty"
        raise RunError(f"trigger {current.partition_key} is {current.state}: {reason}")
    if current.attempt != trigger.attempt:
        raise LostClaim(trigger.partition_key, trigger.attempt)
    return claim(conn, current, dagster_run_id)


@contextmanager
def working_attempt(context: TriggerContext) -> Iterator[None]:
    """Give up the attempt when the block raises, and raise on; a lost claim or a transient error gives nothing up.

    Transient errors are waited out by the caller; one that did not pass in time (``StillFailing``) costs the attempt.

    A sample deleted after its selection is no failure, nor is a file that a purge replaced before it was read. The next
    attempt selects again and reads the current files, so it is always granted.
    """
    try:
        yield
    except (CatalogError, LostClaim, StaleRun):
        raise
    except Exception as error:
        if is_transient(error) and not isinstance(error, StillFailing):
            raise
        if context.trigger.state != "trained":
            deleted = isinstance(error, DeletedKey)
            reason = f"{error}; it selects again" if deleted else f"{type(error).__name__}: {error}"
            give_up_attempt(context.platform, context.run, context.trigger, reason, error=error)
        raise


def give_up_attempt(
    platform: Platform, run: RunRow, trigger: TriggerRow, reason: str, *, error: Exception | None = None
) -> tuple[RunRow, TriggerRow]:
    """End the current attempt without a commit: the next one becomes pending, or the trigger fails.

    A trigger fails when it has used up its attempts, or at once by an error that every attempt would meet. Then ``on_failure:
    stop`` makes the run wait for ``pipeline resume``; ``continue`` resumes deciding with the previous model. An attempt that
    ended because of a deletion does not count.
    """
    spec = platform.spec_of(run)
    with platform.transaction() as conn:
        current = get_trigger(conn, trigger.id, lock=True)
        # `resume` begins another round of max_attempts.
        is_last = current.attempt % spec.max_attempts == 0 or (error is not None and is_permanent(error))
        if not is_last or is_deletion(conn, platform, run, error):
            raised = raise_attempt(conn, trigger, reason)
            return get_run(conn, run.id), raised
        failed = fail(conn, trigger, reason)
        if spec.on_failure == "stop":
            return move_run(conn, get_run(conn, run.id, lock=True), state="waiting"), failed
        return get_run(conn, run.id), failed


def release_attempt(platform: Platform, run: RunRow, dagster_run_id: str, reason: str) -> None:
    """Give back what one Dagster run has claimed of a run's unfinished trigger, at no cost; nothing where it holds none."""
    with platform.transaction() as conn:
        current = unfinished_trigger(conn, run.id)
        if current is not None and (current.state, current.dagster_run_id) == ("training", dagster_run_id):
            release(conn, current, reason)


def is_deletion(conn: sa.Connection, platform: Platform, run: RunRow, error: Exception | None) -> bool:
    """Check in the catalog that a deletion or purge caused an error, which the next attempt does not meet again."""
    match error:
        case WithdrawnModel():
            return True
        case UnknownModel():
            # Withdrawn after the attempt was claimed, and removed from its store.
            return error.model not in {use.hash for use in model_uses(conn)}
        case DeletedKey():
            return is_deleted(conn, run.dataset_id, error.key)
        case CorruptFile():
            return is_replaced(conn, platform.home, get_dataset(conn, platform.spec_of(run).dataset), Path(error.path))
        case _:
            return False


def require_running(platform: Platform, run: RunRow) -> None:
    """Raise ``TriggerFailed`` when the run waits for an operator."""
    if run.state != "waiting":
        return
    with platform.transaction() as conn:
        failed = list_triggers(conn, run.id, ["failed"])[-1]
    raise TriggerFailed(run.pipeline, failed.partition_key, failed.attempt, failed.error or "unknown")
