"""Replay: one run walks a range of batches in order, decides, trains inline and evaluates.

Pipeline, spec hash, seed and name identify a replay. Launched again, it continues where its catalog rows end. Committed
results are yielded again, and nothing is trained twice.

A batch at which nothing happens costs one query: the run's place in the stream is recorded with every change of the run, and
from time to time. Batches walked since then are walked again after a kill; nothing happens at them.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from time import monotonic
from typing import Final

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.decisions import DecisionRow, decisions_in_batch
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.triggers import UNFINISHED, TriggerRow, get_trigger, list_triggers
from modyn_dagster.data.view import DatasetView
from modyn_dagster.distributed.protocols import Pool
from modyn_dagster.errors import CatalogError, LostClaim, StaleRun, is_transient
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.checks import require_passed
from modyn_dagster.pipeline.context import TriggerContext, load_context
from modyn_dagster.pipeline.decide.attempts import (
    claim_context,
    give_up_attempt,
    release_attempt,
    require_running,
    working_attempt,
)
from modyn_dagster.pipeline.decide.driver import advance_while_paused
from modyn_dagster.pipeline.decide.manual_trigger import recorded_manual, repeat_manual
from modyn_dagster.pipeline.decide.waiting import Patience, Say, patient_events
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.preflight import require_runnable
from modyn_dagster.pipeline.promotion.actions import repeated_actions
from modyn_dagster.pipeline.promotion.gate_walk import GateWalk, require_replayable
from modyn_dagster.pipeline.replay.lookahead import Lookahead, clear_ahead
from modyn_dagster.pipeline.replay.measuring_ahead import MeasuringAhead
from modyn_dagster.pipeline.replay.run import ReplayRequest, begin_replay, run_lock
from modyn_dagster.pipeline.stages.trigger_stages import (
    StageResult,
    evaluation_stage,
    finish_evaluations,
    finish_run,
    model_stage,
    recorded_stages,
    training_set_stage,
)
from modyn_dagster.pipeline.training_stream import longer_stream, training_stream
from modyn_dagster.progress import ProgressCallback
from modyn_dagster.triggering import Stream

#: The place of a run in the stream is recorded after so many seconds, before each training, and at the end.
_RECORD_SECONDS: Final = 0.5

#: Called before each batch with its partition key, the number of batches done, and their total; then before what is left to
#: evaluate, with words in place of the key.
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class BatchReplayed:
    """A replayed batch: everything that its samples allow to decide is decided.

    Attributes:
        run: the run afterwards.
        batch: the batch.
        triggers: triggers at its samples.
        decisions: decisions at its samples.
        is_last: whether it is the last batch of the selection.
        failed: triggers of the run so far that failed, and without whose models it went on.
    """

    run: RunRow
    batch: BatchRow
    triggers: Sequence[TriggerRow]
    decisions: Sequence[DecisionRow] = ()
    is_last: bool = False
    failed: int = 0


def replay(
    platform: Platform,
    request: ReplayRequest,
    progress: Progress | None = None,
    training: ProgressCallback | None = None,
    waits: Say | None = None,
    pool: Pool | None = None,
) -> Iterator[BatchReplayed | StageResult]:
    """Walk the selected batches in ordinal order.

    Yields a ``BatchReplayed`` per batch and a ``StageResult`` per training set, model and evaluation as they come; at the end
    the run is finished and every model's evaluation is yielded once more with all its intervals. After a transient error the
    walk waits and goes on at the batch that it had come to.

    Args:
        platform: the project.
        request: pipeline, batches and identity.
        progress: called before each batch.
        training: called at every step of the trainings.
        waits: receives a line for every pause after a transient error.
        pool: workers that train, measure and evaluate ahead of the walk, which alone commits; any number gives the same end.

    Raises:
        BatchGap: the selection leaves out batches after the run's last one.
        StillFailing: a transient error did not pass in time; the attempt under way is not lost.
        TriggerFailed: a trigger used up its attempts and the spec says ``on_failure: stop``.
    """
    spec = platform.pipeline(request.pipeline)
    require_runnable(spec, platform.dataset(spec.dataset), platform.project.folder)
    require_replayable(spec, repeats=request.manual_of is not None)
    run, selection = begin_replay(platform, request)
    walked, has_waited = 0, False
    lookahead = Lookahead(platform, run, pool, request.fast_path)

    def say(line: str) -> None:
        nonlocal has_waited
        has_waited = True
        try:
            release_attempt(platform, run, request.dagster_run_id, line)
        except (CatalogError, LostClaim):
            pass
        except Exception as error:
            # A server that only reads, for example: the claim is given back after the pause.
            if not is_transient(error):
                raise
        if waits is not None:
            waits(line)

    def walk() -> Iterator[BatchReplayed | StageResult]:
        nonlocal walked, selection
        view = platform.view_of(run, until=selection[-1].ordinal)
        # The same rows as the view's, so that thousands of them are held once.
        selection = view.batches_at([batch.ordinal for batch in selection])
        with run_lock(platform.engine, run), Measurer(platform) as measurer:
            if has_waited:
                # While the catalog was out of reach, the claim could not be given back.
                release_attempt(platform, run, request.dagster_run_id, "its process waited for Postgres")
            steps = _Walk(platform, request, run.id, view, progress, training, measurer, lookahead)
            try:
                for event in steps.batches(selection, walked):
                    walked += isinstance(event, BatchReplayed)
                    yield event
            finally:
                steps.drop_guesses()

    yield from patient_events(walk, Patience(platform.settings.max_wait, say), _is_progress)


def _is_progress(event: BatchReplayed | StageResult) -> bool:
    """Tell steps from results that are read again after a pause."""
    return isinstance(event, BatchReplayed) or event.fresh


class _Walk:
    """One process that walks one run, whose row it keeps up to date while it holds the run's lock."""

    def __init__(
        self,
        platform: Platform,
        request: ReplayRequest,
        run_id: int,
        view: DatasetView,
        progress: Progress | None,
        training: ProgressCallback | None,
        measurer: Measurer,
        lookahead: Lookahead,
    ) -> None:
        self._platform = platform
        self._lookahead = lookahead
        self._measurer = measurer
        self._measuring = MeasuringAhead(platform, lookahead.spare_pool)
        self._request = request
        self._view = view
        self._progress, self._training = progress, training
        self._streamed: tuple[DatasetView, int, Stream] | None = None
        with platform.transaction() as conn:
            self._run = get_run(conn, run_id)
        # Place in the catalog, and when it was recorded; the row in memory may be ahead of it.
        self._place, self._recorded = self._run.last_ordinal, monotonic()
        self._gate = GateWalk(platform, self._run, ahead=True, repeat=repeated_actions(platform, self._run))
        # Read anew when this process has changed one: the run's lock keeps others from it.
        self._triggers: Sequence[TriggerRow] | None = None

    def batches(self, selection: Sequence[BatchRow], walked: int) -> Iterator[BatchReplayed | StageResult]:
        """Walk a selection whose first batches this process has walked before."""
        require_running(self._platform, self._run)
        for index, batch in list(enumerate(selection))[walked:]:
            if self._progress is not None:
                self._progress(batch.partition_key, index, len(selection))
            yield from self._batch(batch, is_last=batch is selection[-1])
        self._look(self._run.last_ordinal)
        self._run = self._gate.record(self._run)
        self._record_place()
        if self._progress is not None:
            self._progress("evaluates the last intervals", len(selection), len(selection))
        yield from finish_evaluations(self._platform, self._run, self._renewed(), self._lookahead.pool)
        clear_ahead(self._platform, finish_run(self._platform, self._run.id))

    def drop_guesses(self) -> None:
        """Drop what workers were asked ahead."""
        self._lookahead.drop()
        self._measuring.drop()

    def _batch(self, batch: BatchRow, *, is_last: bool) -> Iterator[BatchReplayed | StageResult]:
        for trigger in self._triggers_in(batch):
            if trigger.state == "trained":
                yield from recorded_stages(self._context(trigger, batch))
        if batch.ordinal > self._run.last_ordinal:
            yield from self._decide(batch)
            self._run = replace(self._run, last_ordinal=batch.ordinal)
        if monotonic() - self._recorded > _RECORD_SECONDS:
            self._record_place()
        failed = sum(row.state == "failed" and ordinal_of(row.point) <= batch.ordinal for row in self._all_triggers())
        yield BatchReplayed(self._run, batch, self._triggers_in(batch), self._decisions_in(batch), is_last, failed)

    def _record_place(self) -> None:
        """Record the last walked batch in the catalog."""
        if self._place < self._run.last_ordinal:
            with self._platform.transaction() as conn:
                current = get_run(conn, self._run.id, lock=True)
                self._run = move_run(conn, current, last_ordinal=self._run.last_ordinal)
        self._place, self._recorded = self._run.last_ordinal, monotonic()

    def _look(self, until: int) -> None:
        """Let the gate look at the batches up to an ordinal."""
        if self._gate.is_there:
            self._run = self._gate.advance(self._run, self._renewed(), until)

    def _last_done(self) -> int:
        """Ordinal of the last batch whose triggers are all done."""
        unfinished = next((row for row in self._all_triggers() if row.state in UNFINISHED), None)
        return self._run.last_ordinal if unfinished is None else min(self._run.last_ordinal, ordinal_of(unfinished.point) - 1)

    def _triggers_in(self, batch: BatchRow) -> Sequence[TriggerRow]:
        return [row for row in self._all_triggers() if ordinal_of(row.point) == batch.ordinal]

    def _all_triggers(self) -> Sequence[TriggerRow]:
        if self._triggers is None:
            with self._platform.transaction() as conn:
                self._triggers = list_triggers(conn, self._run.id)
        return self._triggers

    def _decisions_in(self, batch: BatchRow) -> Sequence[DecisionRow]:
        if ordinal_of(self._run.cursor) < batch.ordinal:
            return ()
        with self._platform.transaction() as conn:
            return decisions_in_batch(conn, self._run.id, batch.ordinal)

    def _decide(self, batch: BatchRow) -> Iterator[StageResult]:
        # Before anything at this batch: its decisions may depend on the champion.
        self._look(self._last_done())
        unfinished = next((row for row in self._all_triggers() if row.state in UNFINISHED), None)
        if unfinished is not None:
            self._record_place()
            yield from self._train(self._take_over_attempt(unfinished), batch)
        stream = self._stream(batch)
        for recorded in recorded_manual(self._platform, self._run, batch.ordinal):
            yield from self._decide_until(batch, stream, recorded.key)
            self._record_place()
            manual = repeat_manual(self._platform, self._run, recorded, stream)
            if manual is not None:
                self._run, trigger = manual
                yield from self._train(trigger, batch)
        yield from self._decide_until(batch, stream, None)

    def _stream(self, batch: BatchRow) -> Stream:
        """Stream up to a batch: the last one made longer, unless samples were deleted since."""
        view = self._renewed()
        if self._streamed is not None and self._streamed[0] is view:
            stream = longer_stream(self._streamed[2], view, self._streamed[1], batch.ordinal)
        else:
            stream = training_stream(view.up_to(batch.ordinal), self._run.origin)
        self._streamed = view, batch.ordinal, stream
        return stream

    def _decide_until(self, batch: BatchRow, stream: Stream, until: int | None) -> Iterator[StageResult]:
        while True:
            here = self._measurer.of(self._run, self._view.up_to(batch.ordinal))
            measure = self._measuring.of(self._run, self._view, here)
            step = advance_while_paused(self._platform, self._run, stream, measure, until=until)
            if step.run.epoch != self._run.epoch:
                self._place = step.run.last_ordinal
            self._run = step.run
            if step.trigger is None:
                return
            self._measuring.drop()
            yield from self._train(step.trigger, batch)

    def _take_over_attempt(self, trigger: TriggerRow) -> TriggerRow:
        """Give up an attempt that a dead process has claimed: whoever holds the run's lock is alone with the run."""
        if trigger.state == "pending":
            return trigger
        reason = f"the process of Dagster run {trigger.dagster_run_id} ended without a commit"
        self._run, trigger = give_up_attempt(self._platform, self._run, trigger, reason)
        return trigger

    def _train(self, trigger: TriggerRow, batch: BatchRow) -> Iterator[StageResult]:
        self._triggers = None
        self._record_place()
        while trigger.state == "pending":
            view = self._renewed().up_to(batch.ordinal)
            self._lookahead.expect(self._run, trigger, self._view)
            claimed = claim_context(self._platform, trigger, self._request.dagster_run_id, view)
            context = replace(claimed, pool=self._lookahead.spare_pool)
            try:
                with working_attempt(context):
                    selected = training_set_stage(context)
                    require_passed(selected.checks)
                    trained = model_stage(selected.context, self._training, self._request.fast_path, self._lookahead.finished)
            except (CatalogError, LostClaim, StaleRun):
                raise
            except Exception as error:  # user code may raise anything; the attempt has recorded it
                if is_transient(error):
                    raise
                # The guesses took it for granted that this trigger gets its model.
                self._lookahead.drop()
                with self._platform.transaction() as conn:
                    self._run, trigger = get_run(conn, self._run.id), get_trigger(conn, trigger.id)
                continue
            self._triggers = None
            self._gate.forget_models()
            yield selected
            if trained is None:
                self._lookahead.drop()
            else:
                self._run = trained.context.run
                yield trained
                # Which interval belongs to which model is known only when all models are trained: workers evaluate all then.
                if context.spec.evaluation.matrix == "full" and self._lookahead.pool is None:
                    # The whole selection is known, so the model is evaluated on all of it at once.
                    yield evaluation_stage(replace(trained.context, view=self._view), finished=False)
            return
        require_running(self._platform, self._run)

    def _context(self, trigger: TriggerRow, batch: BatchRow) -> TriggerContext:
        view = self._renewed().up_to(batch.ordinal)
        with self._platform.transaction() as conn:
            return load_context(conn, self._platform, self._run, trigger, view)

    def _renewed(self) -> DatasetView:
        """Renew the selection's view without samples deleted since; from here on no training set holds them."""
        self._view = self._view.renewed()
        return self._view
