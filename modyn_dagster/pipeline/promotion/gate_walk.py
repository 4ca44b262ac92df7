"""Looks of a run's gate, batch after batch, and their commits: gate, events and champion move together, by compare-and-set.

Looks that change no model's state are committed from time to time: a kill repeats them, with the same numbers.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from time import monotonic, perf_counter
from typing import Any, Final

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.results.promotions import (
    GateRow,
    gate_of,
    insert_promotions,
    list_promotions,
    move_gate,
    states_of,
)
from modyn_dagster.catalog.runs import RunRow, get_run, move_run
from modyn_dagster.catalog.timings import Timing, record_timing
from modyn_dagster.catalog.triggers import TriggerRow, list_triggers, unfinished_trigger
from modyn_dagster.data.view import DatasetView
from modyn_dagster.errors import RunError, StaleRun
from modyn_dagster.evaluation.promotion.gate import GateRules, look_at_batch
from modyn_dagster.evaluation.promotion.state import Change, GateState
from modyn_dagster.keys import ordinal_of
from modyn_dagster.pipeline.measure.dependence import champion_decides
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.pipeline.promotion.evidence import BatchEvidence, RunModels
from modyn_dagster.pipeline.promotion.predictions import GatePredictions
from modyn_dagster.spec.pipeline import PipelineSpec

logger = logging.getLogger(__name__)

_COMMIT_SECONDS: Final = 0.5

#: Changes after a look that people have made, and a replay repeats: the state and evidence in, the state and changes out.
Repeat = Callable[[GateState, BatchEvidence], tuple[GateState, list[Change]]]


def rules_of(spec: PipelineSpec) -> GateRules | None:
    """Rules of a pipeline's gate; None for a pipeline that promotes nothing."""
    if spec.promotion is None:
        return None
    return GateRules(spec.promotion, spec.promotion.metric or spec.evaluation.score_metric)


def last_look(conn: sa.Connection, platform: Platform, run: RunRow) -> int | None:
    """Ordinal of the last batch that a run's gate has looked at; None without a gate, or before the first model."""
    if platform.recorded_spec(run).promotion is None or not list_triggers(conn, run.id, ["trained"]):
        return None
    return gate_of(conn, run.id).batch


def decidable(platform: Platform, run: RunRow, view: DatasetView, looked: int | None) -> DatasetView:
    """Part of a view that may be decided: up to the batch after the gate's last look where decisions depend on the champion.

    The batch of the run's cursor may always be: it was begun after a look at the batch before, or before the first model.
    """
    if looked is None or not champion_decides(platform.recorded_spec(run)):
        return view
    following = next((batch.ordinal for batch in view.batches if batch.ordinal > looked), view.last_ordinal)
    return view.up_to(max(following, ordinal_of(run.cursor)))


def last_decided(run: RunRow, unfinished: TriggerRow | None) -> int:
    """Ordinal of the last batch all of whose samples are decided, with their triggers done."""
    decided = max(run.last_ordinal, ordinal_of(run.cursor) - 1)
    return decided if unfinished is None else min(decided, ordinal_of(unfinished.point) - 1)


@dataclass(slots=True)
class _Place:
    row: GateRow
    state: GateState
    batch: int
    committed: float
    seconds: float = 0.0
    n_looks: int = 0


class GateWalk:
    """Gate of one run in one process. A pipeline without ``promotion`` has none, and nothing happens.

    Args:
        platform: the project.
        run: the run.
        ahead: predict ahead, as a replay does.
        repeat: changes that people have made in another run, by batch.
    """

    def __init__(
        self, platform: Platform, run: RunRow, *, ahead: bool = False, repeat: Mapping[int, Sequence[Repeat]] | None = None
    ) -> None:
        self._platform, self._run_id, self._title = platform, run.id, run.title
        self._rules = rules_of(platform.recorded_spec(run))
        self._predictions = GatePredictions(ahead=ahead)
        self._repeat = repeat or {}
        self._place: _Place | None = None
        self._models: RunModels | None = None

    @property
    def is_there(self) -> bool:
        """True where the pipeline promotes models."""
        return self._rules is not None

    def forget_models(self) -> None:
        """Read the run's models again before the next look: there may be another one."""
        self._models = None

    def advance(self, run: RunRow, view: DatasetView, until: int) -> RunRow:
        """Look at the batches after the last look, up to an ordinal; returns the run, with its champion.

        Args:
            run: as the caller knows it.
            view: of the run's dataset; it may reach beyond ``until``.
            until: all triggers at samples of batches up to here are decided and done.

        Raises:
            StaleRun: another process has moved the gate or the run.
        """
        if self._rules is None:
            return run
        place = self._place or self._read()
        self._place = place
        changes: list[Change] = []
        ordinals = view.columns.ordinals
        for batch in ordinals[slice(*np.searchsorted(ordinals, [place.batch, until], side="right"))].tolist():
            if view.last_key_of(batch) <= run.origin:
                place.batch = batch
                continue
            if self._models is None or self._models.view is not view:
                self._models = RunModels.read(self._platform, run, view)
            begin = perf_counter()
            evidence = BatchEvidence(self._models, self._predictions, batch)
            place.state, changes = look_at_batch(self._rules, place.state, place.batch, evidence)
            for repeat in self._repeat.get(batch, ()):
                place.state, more = repeat(place.state, evidence)
                changes += more
            place.batch = batch
            place.seconds, place.n_looks = place.seconds + perf_counter() - begin, place.n_looks + 1
            if changes:
                run = self._commit(run, place, changes, evidence)
                self._predictions.keep([*_compared(place.state)])
            elif monotonic() - place.committed > _COMMIT_SECONDS:
                run = self._commit(run, place)
        return run

    def record(self, run: RunRow) -> RunRow:
        """Commit looks that changed nothing and are not committed yet."""
        if self._place is None or self._place.batch == self._place.row.batch:
            return run
        return self._commit(run, self._place)

    def _read(self) -> _Place:
        with self._platform.transaction() as conn:
            row = gate_of(conn, self._run_id)
        return _Place(row, GateState.of_json(row.state), row.batch, monotonic())

    def _commit(
        self,
        run: RunRow,
        place: _Place,
        changes: Sequence[Change] = (),
        evidence: BatchEvidence | None = None,
    ) -> RunRow:
        with self._platform.transaction() as conn:
            current = get_run(conn, self._run_id, lock=True)
            place.row = move_gate(conn, place.row, self._title, batch=place.batch, state=place.state.to_json())
            if place.n_looks:
                timing = Timing("promote", place.seconds, place.n_looks, place.batch)
                record_timing(conn, self._run_id, None, None, timing)
            if changes and self._models is not None and evidence is not None:
                record_changes(conn, self._models, changes, batch=place.batch, time=evidence.time)
                current = crown(conn, current, self._models, place.state)
        place.committed, place.seconds, place.n_looks = monotonic(), 0.0, 0
        # A replay is further than its row says.
        return replace(current, last_ordinal=max(current.last_ordinal, run.last_ordinal))


def record_changes(
    conn: sa.Connection,
    models: RunModels,
    changes: Sequence[Change],
    *,
    batch: int,
    time: int | None,
) -> None:
    """Append changes to the events of a run.

    Args:
        conn: the transaction that moves the gate.
        models: of the run.
        changes: in order.
        batch: ordinal of the batch after which they hold.
        time: stream time there, microseconds since 1970.
    """
    last = states_of(list_promotions(conn, models.run.id))
    states: dict[int, str] = {ordinal: event.state for ordinal, event in last.items()}
    hashes = {ordinal: event.model_hash for ordinal, event in last.items()}
    moment = None if time is None else as_timestamp(np.datetime64(time, "us"))
    events: list[dict[str, Any]] = []
    for change in changes:
        context = models.contexts.get(change.trigger)
        # A person may choose a model that the gate had done with, also in the look in which it had.
        before = change.before or states.get(change.trigger)
        states[change.trigger] = change.state
        events.append(
            {
                "trigger_id": context.trigger.id if context is not None else last[change.trigger].trigger_id,
                "model_hash": models.hash_of(change.trigger) or hashes.get(change.trigger, ""),
                "before": before,
                "state": change.state,
                "actor": change.actor,
                "reason": change.reason,
                "batch": batch,
                "time": moment,
                "verdict": change.verdict,
                "action": change.action,
            }
        )
    insert_promotions(conn, models.run.id, events)


def crown(conn: sa.Connection, run: RunRow, models: RunModels, state: GateState) -> RunRow:
    """Record the champion of a gate in the row of its run, which others compare and set."""
    context = None if state.champion is None else models.contexts.get(state.champion)
    champion = None if context is None or context.model is None else context.model.hash
    return run if run.champion_model == champion else move_run(conn, run, champion_model=champion)


def advance_live(platform: Platform, run: RunRow) -> RunRow:
    """Let the gate of a live run look at every batch that is decided, with its triggers done; does nothing without a gate.

    Where another process looks at the same time, one of them goes on, and the other one leaves the rest to it.
    """
    if rules_of(platform.recorded_spec(run)) is None:
        return run
    view = platform.view_of(run)
    with platform.transaction() as conn:
        run = get_run(conn, run.id)
        unfinished = unfinished_trigger(conn, run.id)
    walk = GateWalk(platform, run)
    try:
        return walk.record(walk.advance(run, view, last_decided(run, unfinished)))
    except StaleRun as error:
        logger.info("%s", error)
        with platform.transaction() as conn:
            return get_run(conn, run.id)


def _compared(state: GateState) -> Sequence[int]:
    """Triggers whose models' predictions the next looks may need."""
    former = state.former[-1:]
    return [*([] if state.champion is None else [state.champion]), *former, *(each.trigger for each in state.candidates)]


def require_replayable(spec: PipelineSpec, *, repeats: bool) -> None:
    """Raise ``RunError`` for rules that no replay can follow.

    Args:
        spec: of the pipeline.
        repeats: whether the replay repeats what people did in a live run.
    """
    if spec.promotion is None:
        return
    if spec.promotion.guardrails.max_latency is not None:
        raise RunError(
            f"{spec.name}: promotion.guardrails.max_latency compares measured seconds, which no replay takes again; "
            "leave it out of the pipeline that is replayed"
        )
    if spec.promotion.approve == "manual" and not repeats:
        raise RunError(
            f"{spec.name}: promotion.approve is manual, and a replay has nobody to ask; repeat what people did in a live run "
            "(--manual-of RUN), or replay it with approve: automatic"
        )
