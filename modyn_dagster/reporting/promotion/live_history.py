"""Champions and candidates of a run, read from the catalog: what was live when, who decided it and why, and the score then."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from statistics import fmean
from typing import Any

import sqlalchemy as sa

from modyn_dagster.catalog.results.evaluations import EvaluationRow, list_evaluations
from modyn_dagster.catalog.results.promotions import PromotionRow, gate_of, list_promotions, states_of
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.evaluation.promotion.history import LivePeriod, live_periods
from modyn_dagster.evaluation.promotion.state import GateState, Trial
from modyn_dagster.reporting.scores import spec_of


@dataclass(frozen=True, slots=True)
class ChampionPeriod:
    """A period of one champion, and its mean score on the intervals that began in it; None without any."""

    period: LivePeriod
    score: float | None
    n_intervals: int

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values; moments in UTC."""
        began, until = self.period.began, self.period.until
        return {
            "model": began.model_hash,
            "trigger": began.partition_key,
            "from": _iso(began.created_at),
            "to": None if until is None else _iso(until.created_at),
            "from_stream_time": _iso(began.time),
            "to_stream_time": None if until is None else _iso(until.time),
            "actor": began.actor,
            "reason": began.reason,
            "verdict": None if began.verdict is None else dict(began.verdict),
            "score": self.score,
            "intervals": self.n_intervals,
        }


@dataclass(frozen=True, slots=True)
class CandidateState:
    """A model that is no champion and was none: its last event, and its test where one is under way or has passed."""

    event: PromotionRow
    trial: Trial | None

    @property
    def is_open(self) -> bool:
        """True where it is not decided about."""
        return self.event.state in ("candidate", "shadow", "passed")

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values."""
        trial = self.trial
        return {
            "model": self.event.model_hash,
            "trigger": self.event.partition_key,
            "state": self.event.state,
            "since": _iso(self.event.created_at),
            "since_stream_time": _iso(self.event.time),
            "actor": self.event.actor,
            "reason": self.event.reason,
            "test": None if trial is None else trial.number,
            "pairs": None if trial is None else trial.n,
            "against": None if trial is None else trial.champion,
        }


@dataclass(frozen=True, slots=True)
class LiveHistory:
    """Promotions of a run.

    Attributes:
        title: of the run.
        metric: of the scores, that of the pipeline.
        batch: ordinal of the last batch that the gate has looked at; -1 before the first.
        periods: of the champions, the oldest first.
        candidates: models that never were champion, in the order of their triggers.
    """

    title: str
    metric: str
    batch: int
    periods: Sequence[ChampionPeriod]
    candidates: Sequence[CandidateState]

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values."""
        return {
            "run": self.title,
            "metric": self.metric,
            "last_batch_ordinal": self.batch if self.batch >= 0 else None,
            "live": [each.to_json() for each in self.periods],
            "candidates": [each.to_json() for each in self.candidates],
        }


def read_history(conn: sa.Connection, run: RunRow, *, until: int | None = None) -> LiveHistory | None:
    """Read the promotions of a run; None where its spec has no ``promotion``.

    Args:
        conn: to the catalog.
        run: the run.
        until: number of the last event that counts; default: all.
    """
    spec = spec_of(run)
    if spec.promotion is None:
        return None
    events = [event for event in list_promotions(conn, run.id) if until is None or event.number <= until]
    gate = gate_of(conn, run.id)
    metric = spec.evaluation.score_metric
    periods = live_periods(events)
    cells = [cell for cell in list_evaluations(conn, run.id) if cell.metric == metric] if periods else []
    crowned = {period.began.ordinal for period in periods}
    state = GateState.of_json(gate.state)
    trials = {each.trigger: each.trial for each in state.candidates}
    candidates = [
        CandidateState(event, trials.get(ordinal))
        for ordinal, event in sorted(states_of(events).items())
        if ordinal not in crowned
    ]
    return LiveHistory(run.title, metric, gate.batch, [_scored(period, cells) for period in periods], candidates)


def _scored(period: LivePeriod, cells: Sequence[EvaluationRow]) -> ChampionPeriod:
    begin, end = period.began.time, None if period.until is None else period.until.time
    if begin is None:
        return ChampionPeriod(period, None, 0)
    values = [
        cell.value
        for cell in cells
        if cell.ordinal == period.began.ordinal
        and cell.value is not None
        and begin <= cell.interval_start
        and (end is None or cell.interval_start < end)
    ]
    return ChampionPeriod(period, fmean(values) if values else None, len(values))


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat()
