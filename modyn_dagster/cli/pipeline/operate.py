"""``modyn-dagster pipeline trigger``, ``stop``, ``resume``, ``reset`` and ``finish``: what an operator does to runs."""

from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.pipeline.status import runs_of
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import RunError

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


@click.command()
@click.argument("name")
@click.option("--note", default="", help="Who wants it, and why; recorded with the trigger.")
def trigger(name: str, note: str) -> None:
    """Train pipeline NAME now, on everything its live run has decided about.

    The trigger is recorded with the reason `manual`; the pipeline's sensor asks for its training.
    """
    from modyn_dagster.pipeline.decide.manual_trigger import trigger_now

    platform = open_platform()
    made = trigger_now(platform, platform.pipeline(name).name, note)
    click.echo(f"trigger {made.partition_key} at key {made.key}: {made.reason}")
    click.echo(f"The sensor triggering__{name} asks for its training, if it is on; see `modyn-dagster pipeline status {name}`.")


@click.command()
@click.argument("name")
@click.option("--now", "at_once", is_flag=True, help="Give up an unfinished trigger's attempt, cancel what trains or measures.")
def stop(name: str, at_once: bool) -> None:
    """Have the live run of pipeline NAME decide nothing until it is resumed. Batches go on being ingested."""
    from modyn_dagster.cli.dagster_runs import cancel_work
    from modyn_dagster.pipeline.decide.live_run import stop_run

    platform = open_platform()
    stopped = stop_run(platform, _live_run(platform, name), at_once=at_once)
    run, left = stopped.run, stopped.trigger
    if run.state == "stopping" and left is not None:
        click.echo(f"{run.title} stops as soon as trigger {left.partition_key} ({left.state}) is finished")
    elif left is not None:
        click.echo(f"{run.title} is stopped; once resumed it trains trigger {left.partition_key}, attempt {left.attempt}")
    else:
        click.echo(f"{run.title} is stopped")
    if at_once:
        cancel_work(name, left, stopped.holder)
    click.echo(f"`modyn-dagster pipeline resume {name}` lets it go on, with everything that has arrived until then.")


@click.command()
@click.argument("name")
@click.option("--run", "run_id", type=int, help="Run to resume; default: every one that waits or was stopped.")
def resume(name: str, run_id: int | None) -> None:
    """Let a run of pipeline NAME go on that was stopped, or that stopped at a failed trigger.

    A failed trigger is tried again first. A live run goes on by itself; a replay is launched again afterwards.
    """
    from modyn_dagster.pipeline.decide.live_run import RESUMABLE, resume_run

    platform = open_platform()
    resting = [run for run in runs_of(platform, name) if run.state in RESUMABLE and run_id in (None, run.id)]
    if not resting:
        raise RunError(f"no run of {name} waits for an operator; see `modyn-dagster pipeline status {name}`")
    for run in resting:
        left = resume_run(platform, run).trigger
        if left is None:
            click.echo(f"{run.title}: goes on deciding")
        else:
            click.echo(f"{run.title}: trigger {left.partition_key} will be trained{' again' if left.attempt > 1 else ''}")
        click.echo(_next(run))


@click.command()
@click.argument("name")
@click.option("--from", "before", help="First batch (partition key) of the new run; default: the first one ingested.")
@click.option("--now", "at_once", is_flag=True, help="Give up an unfinished trigger instead of refusing, and cancel its run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(name: str, before: str | None, at_once: bool, yes: bool) -> None:
    """End the live run of pipeline NAME and begin a new one before a batch, with nothing carried over.

    The new run decides about that batch and all later ones again, and trains again. The old run stays readable.
    """
    from modyn_dagster.cli.dagster_runs import cancel_work
    from modyn_dagster.pipeline.decide.live_run import reset_run

    platform = open_platform()
    run = _live_run(platform, name)
    place = f"batch {before}" if before is not None else "the first batch"
    click.echo(f"{run.title} ({run.state}, batch ordinal {run.last_ordinal}) ends, a new one begins before {place}.")
    if not yes:
        click.confirm("Train everything from there again?", abort=True)
    done = reset_run(platform, name, before, at_once=at_once)
    if done.given_up is not None:
        click.echo(f"trigger {done.given_up.partition_key} is given up")
    if at_once:
        cancel_work(name, done.given_up, done.given_up.dagster_run_id if done.given_up is not None else None)
    click.echo(f"{done.old.title} is {done.old.state}; {done.new.title} begins before {done.first or 'the first batch'}")
    click.echo(_next(done.new))


@click.command()
@click.argument("name")
def finish(name: str) -> None:
    """End the live run of pipeline NAME and judge its models on the last, still open interval too."""
    from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run

    platform = open_platform()
    run = _live_run(platform, name)
    if not run.is_open:
        raise RunError(f"{name} has no open live run to finish")
    judged = list(finish_live_run(platform, run))
    click.echo(f"{run.title} is finished; {len(judged)} models were judged")


def _live_run(platform: "Platform", name: str) -> "RunRow":
    from modyn_dagster.catalog.runs import live_run

    with platform.transaction() as conn:
        run = live_run(conn, platform.pipeline(name).name)
    if run is None:
        raise RunError(f"{name} has no live run yet; switch on the sensor triggering__{name}, which begins one")
    return run


def _next(run: "RunRow") -> str:
    if run.mode == "replay":
        return f"Launch it again: `modyn-dagster pipeline replay {run.pipeline}` with the name and seed it has."
    return (
        f"The sensor triggering__{run.pipeline} goes on with it, if it is on; see `modyn-dagster pipeline status {run.pipeline}`."
    )
