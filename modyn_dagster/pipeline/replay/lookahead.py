"""Trainings of a replay ahead of its walk, where neither triggers nor training sets depend on models.

A copy of the policy decides over the rest of the stream, as if every training succeeded, and a pool trains the triggers that it
makes. The walk remains the only one that decides and commits: a finished training takes the place of the walk's own only if
their digests are equal. Where a guess was wrong, a sample was deleted or a worker failed, the walk trains by itself, and the
guesses begin anew.
"""

import logging
import re
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers
from modyn_dagster.data.view import DatasetView
from modyn_dagster.distributed.protocols import Pool, Resources
from modyn_dagster.errors import one_line
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.context import TriggerContext
from modyn_dagster.pipeline.measure.dependence import dependence_reason
from modyn_dagster.pipeline.measure.measurer import Measurer
from modyn_dagster.pipeline.platform import Platform, ahead_path, checkpoint_path
from modyn_dagster.pipeline.replay.training_ahead import AheadTraining, ExpectedTrigger, train_ahead
from modyn_dagster.pipeline.stages.model.finished_training import FinishedTraining, load_finished
from modyn_dagster.pipeline.training_stream import training_stream
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.spec.selection import CHOSEN_BY_MODELS, is_usage_aware
from modyn_dagster.training import FastPath
from modyn_dagster.triggering import Measurement, MeasurementSpec, ModelTrained, Stream, TriggeringPolicy
from modyn_dagster.triggering.build import pipeline_policy
from modyn_dagster.triggering.loop import Measure, MeasurementPending, drive_policy

logger = logging.getLogger(__name__)

#: Trainings of workers in a row that were not those of the walk, after which it goes on alone: something else is different there.
_MOST_WASTED: Final = 3


def serial_reason(spec: PipelineSpec) -> str | None:
    """Say why the trainings of a pipeline have to wait for each other; None where they need not."""
    if spec.training.use_previous_model:
        return "training.use_previous_model: a training starts from the model before it"
    if (reason := dependence_reason(spec)) is not None:
        return reason
    strategies = spec.selection.strategies
    if any(is_usage_aware(strategy) or isinstance(strategy, CHOSEN_BY_MODELS) for strategy in strategies):
        return "selection.strategy asks the models before it, or looks into their training sets"
    if spec.training.ranks > 1:
        return f"training.ranks {spec.training.ranks}: the ranks of a training share the cores already"
    if spec.training.device != "cpu":
        return f"training.device {spec.training.device}: workers are dealt no GPUs"
    return None


class Lookahead:
    """Trainings ahead of one walk of a run. Without a pool, or for a pipeline with a ``serial_reason``, it has none.

    Args:
        platform: the project.
        run: run of the replay.
        pool: workers; None for none.
        fast_path: options of reading during the trainings.

    Attributes:
        pool: workers of the replay, for whatever else they can do.
    """

    def __init__(self, platform: Platform, run: RunRow, pool: Pool | None, fast_path: FastPath) -> None:
        reason = None if pool is None else serial_reason(platform.spec_of(run))
        if reason is not None:
            logger.warning("%s trains one model after the other: %s", run.title, reason)
        self.pool = pool
        self._trainers = pool if reason is None else None
        self._platform, self._fast_path = platform, fast_path
        self._expected: deque[ExpectedTrigger] = deque()
        self._results: Iterator[None] = iter(())
        self._wasted = 0
        # Of its own: that of the walk has a newer model, and the same columns.
        self._measurer = Measurer(platform)

    @property
    def spare_pool(self) -> Pool | None:
        """Workers for short calls of the walk; None while they train ahead, as a call would wait for trainings."""
        return self.pool if self._trainers is None else None

    def expect(self, run: RunRow, trigger: TriggerRow, view: DatasetView) -> None:
        """Prepare for a trigger that the policy has made; wrong guesses are dropped, and others begin with it.

        Args:
            run: the run, as it was when the trigger was decided.
            trigger: its unfinished trigger.
            view: dataset up to the end of the replay.
        """
        now = ExpectedTrigger(trigger.ordinal, trigger.key, trigger.point)
        if self._trainers is None or (self._expected and self._expected[0] == now):
            return
        self.drop()
        resources = Resources(cpus=run.threads)
        self._results = self._trainers.map(train_ahead, self._trainings(run, now, view), resources)

    def finished(self, context: TriggerContext) -> FinishedTraining | None:
        """Wait for the training of the expected trigger; None where the walk has to train by itself."""
        if self._trainers is None or context.training_set is None:
            return None
        try:
            next(self._results)
        except Exception as error:  # noqa: BLE001 - the walk trains by itself, and meets the error if it comes again
            logger.warning("trigger %s is trained again: %s", context.trigger.partition_key, one_line(error))
            self.drop()
            return None
        self._expected.popleft()
        finished = load_finished(context, context.training_set)
        self._wasted = self._wasted + 1 if finished is None else 0
        if finished is None:
            self.drop()
        if self._wasted == _MOST_WASTED:
            logger.warning("%s goes on without trainings ahead: workers make others than it does", context.run.title)
            self._trainers = None
        return finished

    def drop(self) -> None:
        """Drop all guesses; trainings that have not begun are not made."""
        close = getattr(self._results, "close", None)
        if close is not None:
            close()
        self._results = iter(())
        self._expected.clear()
        self._measurer.close()
        self._measurer = Measurer(self._platform)

    def _trainings(self, run: RunRow, first: ExpectedTrigger, view: DatasetView) -> Iterator[AheadTraining]:
        # Without a model, as before the first one, there is nothing to measure with, and guesses end.
        measure = _unmeasured if run.live_model is None else self._measurer.of(run, view)
        for trigger in _expected_triggers(self._platform, run, first, view, measure):
            between = tuple(self._expected)
            self._expected.append(trigger)
            yield AheadTraining(self._platform.settings, run.id, trigger, between, self._fast_path)


def _expected_triggers(
    platform: Platform, run: RunRow, first: ExpectedTrigger, view: DatasetView, measure: Measure
) -> Iterator[ExpectedTrigger]:
    """Yield a trigger that was decided, and those that the policy makes after it, up to a point that cannot be measured yet."""
    policy = pipeline_policy(platform.recorded_spec(run))
    policy.load_state_dict(run.policy_state)
    yield first
    with suppress(MeasurementPending):
        yield from _following(policy, run.cursor, training_stream(view, run.origin), first, measure)


def _following(
    policy: TriggeringPolicy, cursor: int, stream: Stream, last: ExpectedTrigger, measure: Measure
) -> Iterator[ExpectedTrigger]:
    before = last.key
    policy.model_trained(ModelTrained(last.key, 1, 0.0))
    for point, decision, _, _ in drive_policy(policy, cursor, stream, measure):
        if decision.fire:
            last = ExpectedTrigger(last.ordinal + 1, decision.key, point)
            yield last
            policy.model_trained(ModelTrained(decision.key, max(1, stream.count(before, decision.key)), 0.0))
            before = decision.key


def _unmeasured(point: int, _needs: MeasurementSpec) -> Measurement:
    raise MeasurementPending(point)


def clear_ahead(platform: Platform, run: RunRow) -> None:
    """Remove what guesses of a finished run left: trained models, and checkpoints of triggers that never came."""
    ahead, checkpoints = (
        path.parent for path in (platform.home / ahead_path(run.id, 0), platform.home / checkpoint_path(run.id, 0))
    )
    files = files_at(platform.home)
    for path in files.names(ahead):
        files.remove(path)
    left = files.names(checkpoints)
    if not left:
        return
    with platform.transaction() as conn:
        done = ("trained", "skipped")
        triggers = {f"{trigger.ordinal:06d}" for trigger in list_triggers(conn, run.id) if trigger.state not in done}
    for path in left:
        if _ordinal(path) not in triggers:
            files.remove(path)


def _ordinal(path: Path) -> str:
    """Ordinal in the name of a checkpoint, of a file beside it, or of an unfinished one."""
    found = re.match(r"\.?(\d+)", path.name)
    return found.group(1) if found else ""
