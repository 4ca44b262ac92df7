"""Attempts of a trigger: claim one, give it up, fail for good."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from modyn_dagster.catalog.datasets import get_dataset
from modyn_dagster.catalog.deletions import is_deleted
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, claim, fail, get_trigger, list_triggers, raise_attempt
from modyn_dagster.errors import CatalogError, CorruptFile, DeletedKey, LostClaim, RunError, StaleRun, TriggerFailed
from modyn_dagster.ingestion.deletion.delete import is_replaced
from modyn_dagster.pipeline.platform import Platform, spec_of


def claim_trigger(platform: Platform, trigger: TriggerRow, dagster_run_id: str) -> TriggerRow:
    """Take a pending trigger for one Dagster run. A trained trigger is returned as it is: working on it again is a check.

    Raises:
        LostClaim: another run works on it.
        RunError: it failed for good, or was skipped.
    """
    with platform.transaction() as conn:
        now = get_trigger(conn, trigger.id, lock=True)
        if now.state == "trained":
            return now
        if now.state in ("failed", "skipped"):
            raise RunError(f"trigger {now.partition_key} is {now.state}: {now.error or 'its training set was empty'}")
        if now.attempt != trigger.attempt:
            raise LostClaim(trigger.partition_key, trigger.attempt)
        return claim(conn, now, dagster_run_id)


@contextmanager
def working_attempt(platform: Platform, run: RunRow, trigger: TriggerRow) -> Iterator[None]:
    """Whatever ends the block, but a lost claim or an unreachable catalog, gives the attempt up and goes on up.

    A sample that was deleted after it was selected is nobody's failure, nor is a file that a purge replaced before it was read:
    the next attempt, which selects again and reads what counts now, is always granted.
    """
    try:
        yield
    except (CatalogError, LostClaim, StaleRun):
        raise
    except DeletedKey as error:
        if trigger.state != "trained":
            give_up_attempt(platform, run, trigger, f"{error}; it selects again", granted=_is_deleted(platform, run, error.key))
        raise
    except CorruptFile as error:
        if trigger.state != "trained":
            give_up_attempt(platform, run, trigger, f"CorruptFile: {error}", granted=_is_replaced(platform, run, error.path))
        raise
    except Exception as error:
        if trigger.state != "trained":
            give_up_attempt(platform, run, trigger, f"{type(error).__name__}: {error}")
        raise


def give_up_attempt(platform: Platform, run: RunRow, trigger: TriggerRow, reason: str, *, granted: bool = False) -> TriggerRow:
    """The current attempt ended without a commit: the next one becomes pending, or the trigger fails.

    When a trigger has used up its attempts, ``on_failure: stop`` makes the run wait for ``pipeline resume``; ``continue``
    lets it go on with the previous model. ``granted``: there is a next one in any case.
    """
    spec = spec_of(run)
    with platform.transaction() as conn:
        now = get_trigger(conn, trigger.id, lock=True)
        # `resume` raises the attempt too, so attempts come in rounds of max_attempts.
        if granted or now.attempt % spec.max_attempts:
            return raise_attempt(conn, trigger, reason)
        failed = fail(conn, trigger, reason)
        if spec.on_failure == "stop":
            move_run(conn, get_run(conn, run.id, lock=True), state="waiting")
        return failed


def _is_deleted(platform: Platform, run: RunRow, key: int) -> bool:
    """Whether the catalog too says that a key is deleted: then no selection holds it any more, and attempts come to an end."""
    with platform.transaction() as conn:
        return is_deleted(conn, run.dataset_id, key)


def _is_replaced(platform: Platform, run: RunRow, path: str) -> bool:
    """Whether the catalog names a newer file now: then the next attempt does not read this one."""
    with platform.transaction() as conn:
        return is_replaced(conn, platform.home, get_dataset(conn, spec_of(run).dataset), Path(path))


def require_running(platform: Platform, run: RunRow) -> None:
    """Raise ``TriggerFailed`` when the run waits for an operator."""
    if run.state != "waiting":
        return
    with platform.transaction() as conn:
        failed = list_triggers(conn, run.id, ["failed"])[-1]
    raise TriggerFailed(run.pipeline, failed.partition_key, failed.attempt, failed.error or "unknown")
