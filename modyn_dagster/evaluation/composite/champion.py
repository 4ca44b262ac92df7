"""The champion of a run: each model has to be at least as good as the champion before it, where both were judged."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.spec.evaluation import lower_is_better

_Place = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the model of a trigger became the champion at its turn, and why; triggers by their ordinals."""

    trigger: int
    promoted: bool
    reason: str
    champion: int


def champions(models: Sequence[int], cells: Iterable[EvaluationRow], metric: str) -> list[Verdict]:
    """A verdict per model, in the order of their triggers.

    Two models are compared by their mean scores over the intervals where both have one: those of which neither saw samples in
    training, else all. The first is the champion until another one is at least as good; without a common interval nobody is.
    """
    scores: dict[int, dict[_Place, EvaluationRow]] = {model: {} for model in models}
    for cell in cells:
        if cell.metric == metric and cell.value is not None and cell.ordinal in scores:
            scores[cell.ordinal][cell.interval_start, cell.interval_end] = cell
    verdicts: list[Verdict] = []
    for model in sorted(models):
        if not verdicts:
            verdicts.append(Verdict(model, True, "the first model", model))
            continue
        champion = verdicts[-1].champion
        promoted, reason = _challenge(scores[model], scores[champion], champion, metric)
        verdicts.append(Verdict(model, promoted, reason, model if promoted else champion))
    return verdicts


def _challenge(
    ours: Mapping[_Place, EvaluationRow], theirs: Mapping[_Place, EvaluationRow], champion: int, metric: str
) -> tuple[bool, str]:
    common = sorted(ours.keys() & theirs.keys())
    if not common:
        return False, f"no interval yet where it and the champion, trigger {champion}, both have a {metric}"
    unseen = [place for place in common if not (ours[place].seen_in_training or theirs[place].seen_in_training)]
    places = unseen or common
    here, there = (sum(float(cells[place].value or 0) for place in places) / len(places) for cells in (ours, theirs))
    promoted = here <= there if lower_is_better(metric) else here >= there
    kind = "intervals" if unseen else "intervals, all of which one of them saw in training"
    scores = f"mean {metric} {here:.6g} against {there:.6g} of the champion (trigger {champion})"
    return promoted, f"{scores}, over {len(places)} {kind}"
