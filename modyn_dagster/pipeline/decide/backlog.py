"""Backlog of a live run: triggers that a training run takes over after its own, one after the other.

Each is decided by the tick of the sensor, claimed and trained as if a run had been requested for it alone, so decisions and
models are those of a replay. The run that takes it over is the one that claims it: a kill leaves what the kill of any training
run leaves, and the sensor requests the next attempt.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

from modyn_dagster.catalog.runs import live_run
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import LostClaim, RunError
from modyn_dagster.pipeline.checks import require_passed
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.decide.attempts import claim_context, working_attempt
from modyn_dagster.pipeline.decide.tick import Attempt, tick_run
from modyn_dagster.pipeline.decide.waiting import Say, patiently
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.gate_walk import advance_live
from modyn_dagster.pipeline.stages.trigger_stages import (
    StageResult,
    evaluation_stage,
    model_stage,
    model_stage_again,
    training_set_stage,
)
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.spec.load import spec_hash
from modyn_dagster.training import FastPath


def train_backlog(
    platform: Platform,
    pipeline: str,
    dagster_run_id: str,
    goes_on: Callable[[], bool],
    progress: ProgressCallback | None = None,
    fast_path: FastPath = FastPath(),  # noqa: B008 - frozen
    waits: Say | None = None,
    pool: Pool | None = None,
) -> Iterator[StageResult]:
    """Decide, train and evaluate one trigger after the other, until there is none to take or ``goes_on`` says no.

    The workers of a pool predict long streams; results do not depend on them.

    A later attempt of a trigger is left to a run of its own, as is anything that another run holds.

    Yields:
        The training set, the model and the evaluation of each trigger, as they are committed.

    Raises:
        Exception: whatever a stage raises; the attempt of its trigger is given up.
    """
    while goes_on():
        # A tick of the sensor at the same moment may have been faster: then the second look finds the trigger that it made.
        trigger = _next_trigger(platform, pipeline) or _next_trigger(platform, pipeline)
        if trigger is None or trigger.attempt > 1:
            return
        try:
            context = claim_context(platform, trigger, dagster_run_id)
        except (LostClaim, RunError):
            # Another run was faster, or an operator gave the trigger up.
            return
        yield from _trained(context, dagster_run_id, progress, fast_path, waits, pool)


def _next_trigger(platform: Platform, pipeline: str) -> TriggerRow | None:
    """Decide up to the next trigger to train; None without one, or when the spec is not that of the live run."""
    with platform.transaction() as conn:
        run = live_run(conn, pipeline)
    # This process may have read an older spec than the sensor, or a newer one: only the sensor changes over.
    if run is None or run.spec_hash != spec_hash(platform.pipeline(pipeline)):
        return None
    return tick_run(platform, run, lambda _: Attempt.GOING).train


def _trained(
    context: TriggerContext,
    dagster_run_id: str,
    progress: ProgressCallback | None,
    fast_path: FastPath,
    waits: Say | None,
    pool: Pool | None,
) -> Iterator[StageResult]:
    platform = context.platform
    longest = platform.settings.max_wait

    def again() -> TriggerContext:
        # A commit that was under way when Postgres was lost may have taken place.
        return claim_context(platform, context.trigger, dagster_run_id)

    with working_attempt(context):
        selected = patiently(longest, lambda: training_set_stage(context), waits, again=lambda: training_set_stage(again()))
        yield selected
        require_passed(selected.checks)
        work = selected.context
        trained = patiently(
            longest,
            lambda: model_stage(work, progress, fast_path),
            waits,
            again=lambda: model_stage_again(work, again, progress, fast_path),
        )
    if trained is None:
        return
    yield trained
    require_passed(trained.checks)
    last = trained.context

    def evaluated() -> StageResult:
        return evaluation_stage(replace(last, view=platform.view_of(last.run), pool=pool), finished=False)

    yield patiently(longest, evaluated, waits)
    patiently(longest, lambda: advance_live(platform, last.run), waits)
