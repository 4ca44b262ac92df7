"""Dagster runs that work for nothing since an operator gave up what they do: cancelled, or named."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final

import click

from modyn_dagster.cli.launching import dagster_instance
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance

    from modyn_dagster.catalog.triggers import TriggerRow

_BY_HAND: Final = "Dagster run {run} can no longer commit; terminate it in Dagster to free the machine."


def cancel_work(pipeline: str, trigger: "TriggerRow | None", holder: str | None) -> None:
    """Cancel whatever trains a trigger that was given up, and whatever measures for a pipeline; say what became of each run.

    Args:
        pipeline: its name.
        trigger: the one given up; None where none was unfinished.
        holder: the Dagster run that had claimed it.
    """
    try:
        with dagster_instance(Settings.from_environment()) as instance:
            for line in _cancelled(instance, pipeline, trigger, holder):
                click.echo(line)
    except Exception as error:  # noqa: BLE001 - the run is stopped whether or not Dagster's storage answers
        click.echo(f"Dagster cannot be asked to cancel anything ({type(error).__name__}: {error})", err=True)
        if holder is not None:
            click.echo(_BY_HAND.format(run=holder))


def _cancelled(instance: "DagsterInstance", pipeline: str, trigger: "TriggerRow | None", holder: str | None) -> Iterator[str]:
    for run_id, what in _working(instance, pipeline, trigger, holder).items():
        if instance.get_run_by_id(run_id) is not None and instance.run_coordinator.cancel_run(run_id):
            yield f"Dagster run {run_id}, which {what}, is cancelled"
        else:
            yield _BY_HAND.format(run=run_id)


def _working(instance: "DagsterInstance", pipeline: str, trigger: "TriggerRow | None", holder: str | None) -> Mapping[str, str]:
    """What the runs do that are to be cancelled, by id. One that waits in the queue has not claimed anything yet."""
    from modyn_dagster.assets.dagster_runs import MEASUREMENT_TAG, TRIGGER_TAG, going_runs, has_ended

    found = {run.run_id: "measured" for run in going_runs(instance, {MEASUREMENT_TAG: pipeline})}
    if trigger is not None:
        asked = going_runs(instance, {TRIGGER_TAG: trigger.partition_key})
        found |= {run.run_id: f"trained {trigger.partition_key}" for run in asked}
        unknown = holder is not None and instance.get_run_by_id(holder) is None
        if holder is not None and (unknown or not has_ended(instance, holder)):
            found[holder] = f"trained {trigger.partition_key}"
    return found
