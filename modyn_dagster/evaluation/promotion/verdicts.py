"""Champion of a run for whoever shows it: that of the gate, or without one the model with the best mean score."""

from collections.abc import Iterable, Sequence

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.catalog.results.promotions import PromotionRow, states_of
from modyn_dagster.evaluation.composite.champion import Verdict, champions
from modyn_dagster.evaluation.promotion.history import live_periods
from modyn_dagster.spec.pipeline import PipelineSpec


def champion_verdicts(
    spec: PipelineSpec, models: Sequence[int], cells: Iterable[EvaluationRow], events: Sequence[PromotionRow]
) -> list[Verdict]:
    """A verdict per model, in the order of their triggers; the last one names the champion of now, if there is one.

    Args:
        spec: of the run; with ``promotion`` its gate decides, otherwise mean scores do, as by ``champions``.
        models: ordinals of the triggers that have a model.
        cells: of the run.
        events: promotions of the run.
    """
    if spec.promotion is None:
        return champions(models, cells, spec.evaluation.score_metric)
    last = states_of(events)
    present = _present(models, events)
    crowned = {event.ordinal for event in events if event.state == "champion"} | {present}
    return [
        Verdict(model, model in crowned, _reason(last.get(model), is_champion=model == present), present)
        for model in sorted(models)
    ]


def _present(models: Sequence[int], events: Sequence[PromotionRow]) -> int | None:
    """Champion by the events of a gate; None where a deletion has withdrawn it and none follows."""
    if not events:
        # Before its first look the gate has said nothing: the first model of a run is its champion.
        return min(models, default=None)
    [*_, last] = [None, *live_periods(events)]
    return None if last is None or last.until is not None or last.began.ordinal not in models else last.began.ordinal


def _reason(event: PromotionRow | None, *, is_champion: bool) -> str:
    if event is None:
        return "the first model" if is_champion else "the gate has not looked at it yet"
    return f"{event.state}: {event.reason}"
