"""``modyn-dagster pipeline start``, ``trigger``, ``stop``, ``resume``, ``reset`` and ``finish``: what operators do."""

from contextlib import closing
from typing import TYPE_CHECKING

import click

from modyn_dagster.cli.console import say
from modyn_dagster.cli.pipeline.status import runs_of
from modyn_dagster.cli.project import open_platform
from modyn_dagster.errors import RunError

if TYPE_CHECKING:
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


@click.command()
@click.argument("name")
@click.option("--from-replay", "run_id", type=int, required=True, help="Finished replay to go on from, see `pipeline status`.")
def start(name: str, run_id: int) -> None:
    """Begin the live run of pipeline NAME where a replay has come to, with its history, models and state.

    Nothing is trained again: the live run decides about the batches behind the replay's last one, as if it had been there from
    the beginning. The replay stays as it is.
    """
    from modyn_dagster.catalog.results.models import list_models
    from modyn_dagster.pipeline.replay.start_live import start_live

    with closing(open_platform()) as platform:
        started = start_live(platform, name, run_id)
        with platform.transaction() as conn:
            n_models = len(list_models(conn, started.run.id))
    run = started.run
    if started.anew:
        history = f"{n_models} model{'s' * (n_models != 1)} and the state of {started.replay.title}"
        say(f"{run.title} begins after batch ordinal {run.last_ordinal}, with {history} (seed {run.seed}, threads {run.threads})")
    else:
        say(f"{run.title} ({run.state}, batch ordinal {run.last_ordinal}) was started from {started.replay.title} already")
    say(_next_step(run))


@click.command()
@click.argument("name")
@click.option("--note", default="", help="Person and reason; recorded with the trigger.")
def trigger(name: str, note: str) -> None:
    """Train pipeline NAME now, on all samples that its live run has decided about.

    The trigger is recorded with the reason `manual`; the pipeline's sensor requests its training.
    """
    from modyn_dagster.pipeline.decide.manual_trigger import trigger_now

    with closing(open_platform()) as platform:
        row = trigger_now(platform, platform.pipeline(name).name, note)
    say(f"trigger {row.partition_key} at key {row.key}: {row.reason}")
    say(f"The sensor triggering__{name} requests its training, if it is on; see `modyn-dagster pipeline status {name}`.")


@click.command()
@click.argument("name")
@click.option("--now", "at_once", is_flag=True, help="Abandon an unfinished trigger's attempt, cancel its runs and measurements.")
def stop(name: str, at_once: bool) -> None:
    """Stop the decisions of pipeline NAME's live run until it is resumed. Ingestion of batches continues."""
    from modyn_dagster.cli.dagster_runs import cancel_work
    from modyn_dagster.pipeline.decide.live_run import stop_run

    with closing(open_platform()) as platform:
        stopped = stop_run(platform, _live_run(platform, name), at_once=at_once)
    run, unfinished = stopped.run, stopped.trigger
    if run.state == "stopping" and unfinished is not None:
        say(f"{run.title} stops as soon as trigger {unfinished.partition_key} ({unfinished.state}) is finished")
    elif unfinished is not None:
        attempt = f"{unfinished.partition_key}, attempt {unfinished.attempt}"
        say(f"{run.title} is stopped; once resumed it trains trigger {attempt}")
    else:
        say(f"{run.title} is stopped")
    if at_once:
        cancel_work(name, unfinished, stopped.holder)
    say(f"`modyn-dagster pipeline resume {name}` resumes it, with all batches that have arrived until then.")


@click.command()
@click.argument("name")
@click.option("--run", "run_id", type=int, help="Run to resume; default: all runs that wait or were stopped.")
def resume(name: str, run_id: int | None) -> None:
    """Resume a run of pipeline NAME that was stopped, or that stopped at a failed trigger.

    A failed trigger is retrained first. A live run then continues by itself; a replay has to be launched again.
    """
    from modyn_dagster.pipeline.decide.live_run import RESUMABLE, resume_run

    with closing(open_platform()) as platform:
        runs = [run for run in runs_of(platform, name) if run.state in RESUMABLE and run_id in (None, run.id)]
        if not runs:
            raise RunError(f"no run of {name} waits for an operator; see `modyn-dagster pipeline status {name}`")
        for run in runs:
            unfinished = resume_run(platform, run).trigger
            if unfinished is None:
                say(f"{run.title}: decides again")
            else:
                again = " again" if unfinished.attempt > 1 else ""
                say(f"{run.title}: trigger {unfinished.partition_key} will be trained{again}")
            say(_next_step(run))


@click.command()
@click.argument("name")
@click.option("--from", "before", help="First batch (partition key) of the new run; default: the first one ingested.")
@click.option("--now", "at_once", is_flag=True, help="Abandon an unfinished trigger instead of refusing, and cancel its run.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(name: str, before: str | None, at_once: bool, yes: bool) -> None:
    """End the live run of pipeline NAME and begin a new one before a batch, with nothing carried over.

    The new run decides about that batch and all later ones again, and trains again. The old run stays readable.
    """
    from modyn_dagster.cli.dagster_runs import cancel_work
    from modyn_dagster.pipeline.decide.live_run import reset_run

    with closing(open_platform()) as platform:
        run = _live_run(platform, name)
        place = f"batch {before}" if before is not None else "the first batch"
        say(f"{run.title} ({run.state}, batch ordinal {run.last_ordinal}) ends, a new one begins before {place}.")
        if not yes:
            click.confirm("Train everything from there again?", abort=True)
        done = reset_run(platform, name, before, at_once=at_once)
    if done.given_up is not None:
        say(f"trigger {done.given_up.partition_key} is abandoned")
    if at_once:
        cancel_work(name, done.given_up, done.given_up.dagster_run_id if done.given_up is not None else None)
    say(f"{done.old.title} is {done.old.state}; {done.new.title} begins before {done.first or 'the first batch'}")
    say(_next_step(done.new))


@click.command()
@click.argument("name")
def finish(name: str) -> None:
    """End the live run of pipeline NAME and evaluate its models on the last, still open interval too."""
    from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run

    with closing(open_platform()) as platform:
        run = _live_run(platform, name)
        if not run.is_open:
            raise RunError(f"{name} has no open live run to finish")
        evaluated = list(finish_live_run(platform, run))
    say(f"{run.title} is finished; {len(evaluated)} models were evaluated")


def _live_run(platform: "Platform", name: str) -> "RunRow":
    from modyn_dagster.catalog.runs import live_run

    with platform.transaction() as conn:
        run = live_run(conn, platform.pipeline(name).name)
    if run is None:
        raise RunError(f"{name} has no live run yet; switch on the sensor triggering__{name}, which begins one")
    return run


def _next_step(run: "RunRow") -> str:
    if run.mode == "replay":
        return f"Launch it again: `modyn-dagster pipeline replay {run.pipeline}` with its name and seed."
    return f"The sensor triggering__{run.pipeline} continues it, if it is on; see `modyn-dagster pipeline status {run.pipeline}`."
