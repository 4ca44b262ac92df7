"""Replay: one run walks a range of batches in order, decides, trains inline and evaluates.

A replay is identified by pipeline, spec hash, seed and name. Launched again it continues where its catalog rows end; what
was committed before is yielded again, nothing is trained twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.decisions import DecisionRow, decisions_in_batch
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import TriggerRow, get_trigger, list_triggers, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import CatalogError, LostClaim, StaleRun
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.checks import require_passed
from modyn_dagster.pipeline.context import TriggerContext, trigger_context
from modyn_dagster.pipeline.decide.attempts import claim_trigger, give_up_attempt, require_running, working_attempt
from modyn_dagster.pipeline.decide.driver import Stop, advance
from modyn_dagster.pipeline.decide.manual_trigger import recorded_manual, repeat_manual
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import Platform, spec_of
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.replay.run import ReplayRequest, continue_or_create, run_lock, selected_batches
from modyn_dagster.pipeline.stages.trigger_stages import (
    StageResult,
    evaluation_stage,
    finish_evaluations,
    finish_run,
    model_stage,
    recorded_stages,
    training_set_stage,
)
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.triggering import Stream

#: Called before each batch with its partition key, how many are done, and how many there are.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BatchReplayed:
    """A replay has decided everything that a batch makes decidable; ``is_last`` is said of the selection's last one."""

    run: RunRow
    batch: BatchRow
    triggers: Sequence[TriggerRow]
    decisions: Sequence[DecisionRow] = ()
    is_last: bool = False


def replay(
    platform: Platform,
    request: ReplayRequest,
    progress: Progress | None = None,
    training: ProgressCallback | None = None,
) -> Iterator[BatchReplayed | StageResult]:
    """Walk the selected batches in ordinal order; ``training`` is told of every step of its trainings.

    Yields a ``BatchReplayed`` per batch and a ``StageResult`` per training set, model and evaluation as they come; at the end
    the run is finished and every model's evaluation is yielded once more with all its intervals.

    Raises:
        BatchGap: the selection leaves out batches after the run's last one.
        TriggerFailed: a trigger used up its attempts and the spec says ``on_failure: stop``.
    """
    spec = platform.pipeline(request.pipeline)
    require_runnable(spec, platform.project.datasets[spec.dataset])
    selection = selected_batches(platform, request.pipeline, request.partition_keys)
    run = continue_or_create(platform, request, selection)
    view = platform.view(spec_of(run).dataset, until=selection[-1].ordinal)
    with run_lock(platform.engine, run), Measurer(platform) as measurer:
        yield from _Walk(platform, request, view, progress, training, measurer).over(run.id, selection)


class _Walk:
    """One process walking one run."""

    def __init__(
        self,
        platform: Platform,
        request: ReplayRequest,
        view: DatasetView,
        progress: Progress | None,
        training: ProgressCallback | None,
        measurer: Measurer,
    ) -> None:
        self._platform = platform
        self._measurer = measurer
        self._request = request
        self._view = view
        self._progress, self._training = progress, training

    def over(self, run_id: int, selection: Sequence[BatchRow]) -> Iterator[BatchReplayed | StageResult]:
        run = self._run(run_id)
        require_running(self._platform, run)
        for index, batch in enumerate(selection):
            if self._progress is not None:
                self._progress(batch.partition_key, index, len(selection))
            yield from self._batch(run_id, batch, is_last=batch is selection[-1])
        yield from self._finish(run_id)

    def _batch(self, run_id: int, batch: BatchRow, *, is_last: bool) -> Iterator[BatchReplayed | StageResult]:
        for trigger in self._triggers(run_id, batch):
            if trigger.state == "trained":
                yield from recorded_stages(self._context(run_id, trigger, batch))
        run = self._run(run_id)
        if batch.ordinal > run.last_ordinal:
            yield from self._decide(run_id, batch)
            with self._platform.transaction() as conn:
                run = move_run(conn, get_run(conn, run_id, lock=True), last_ordinal=batch.ordinal)
        with self._platform.transaction() as conn:
            decisions = decisions_in_batch(conn, run_id, batch.ordinal)
        yield BatchReplayed(run, batch, self._triggers(run_id, batch), decisions, is_last)

    def _decide(self, run_id: int, batch: BatchRow) -> Iterator[StageResult]:
        with self._platform.transaction() as conn:
            left = unfinished_trigger(conn, run_id)
        if left is not None:
            yield from self._train(run_id, self._taken_over(run_id, left), batch)
        stream = training_stream(self._renewed().up_to(batch.ordinal), self._run(run_id).origin)
        for recorded in recorded_manual(self._platform, self._run(run_id), batch.ordinal):
            yield from self._decide_until(run_id, batch, stream, recorded.key)
            trigger = repeat_manual(self._platform, self._run(run_id), recorded, stream)
            if trigger is not None:
                yield from self._train(run_id, trigger, batch)
        yield from self._decide_until(run_id, batch, stream, None)

    def _decide_until(self, run_id: int, batch: BatchRow, stream: Stream, until: int | None) -> Iterator[StageResult]:
        while True:
            run = self._run(run_id)
            step = advance(self._platform, run, stream, self._measurer.of(run, self._view.up_to(batch.ordinal)), until=until)
            if step.trigger is not None:
                yield from self._train(run_id, step.trigger, batch)
            elif step.stop is Stop.AT_END:
                return

    def _taken_over(self, run_id: int, trigger: TriggerRow) -> TriggerRow:
        """We hold the run's lock, so whoever was training this trigger is gone."""
        if trigger.state == "pending":
            return trigger
        reason = f"the process of Dagster run {trigger.dagster_run_id} ended without a commit"
        return give_up_attempt(self._platform, self._run(run_id), trigger, reason)

    def _train(self, run_id: int, trigger: TriggerRow, batch: BatchRow) -> Iterator[StageResult]:
        while trigger.state == "pending":
            trigger = claim_trigger(self._platform, trigger, self._request.dagster_run_id)
            context = self._context(run_id, trigger, batch)
            try:
                with working_attempt(self._platform, context.run, trigger):
                    selected = training_set_stage(context)
                    require_passed(selected.checks)
                    trained = model_stage(context, self._training, self._request.fast_path)
            except (CatalogError, LostClaim, StaleRun):
                raise
            except Exception:  # noqa: BLE001 - user code may raise anything; the attempt has recorded it
                trigger = self._trigger(trigger)
                continue
            yield selected
            if trained is not None:
                yield trained
                # Which interval is whose is known when all models are.
                if context.spec.evaluation.matrix == "full":
                    yield self._evaluated(context, finished=False)
            return
        require_running(self._platform, self._run(run_id))

    def _finish(self, run_id: int) -> Iterator[StageResult]:
        yield from finish_evaluations(self._platform, self._run(run_id), self._renewed())
        finish_run(self._platform, run_id)

    def _evaluated(self, context: TriggerContext, *, finished: bool) -> StageResult:
        """A replay knows the whole selection, so a model is judged on all of it at once."""
        return evaluation_stage(replace(context, view=self._view), finished=finished)

    def _context(self, run_id: int, trigger: TriggerRow, batch: BatchRow) -> TriggerContext:
        return trigger_context(self._platform, self._run(run_id), trigger, self._renewed().up_to(batch.ordinal))

    def _renewed(self) -> DatasetView:
        """The selection without what was deleted since the replay began: from here on no training set holds it."""
        self._view = self._view.renewed()
        return self._view

    def _run(self, run_id: int) -> RunRow:
        with self._platform.transaction() as conn:
            return get_run(conn, run_id)

    def _trigger(self, trigger: TriggerRow) -> TriggerRow:
        with self._platform.transaction() as conn:
            return get_trigger(conn, trigger.id)

    def _triggers(self, run_id: int, batch: BatchRow) -> list[TriggerRow]:
        with self._platform.transaction() as conn:
            return [row for row in list_triggers(conn, run_id) if ordinal_of(row.point) == batch.ordinal]
