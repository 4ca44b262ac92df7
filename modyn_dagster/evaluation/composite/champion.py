"""Champion of a run: a model must be at least as good as the champion before it on the intervals where both have a score."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from modyn_dagster.catalog.results.evaluations import EvaluationRow
from modyn_dagster.spec.tasks.metrics import lower_is_better

Interval = tuple[datetime, datetime]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Result of a model's challenge.

    Attributes:
        trigger: ordinal of the model's trigger.
        promoted: it became the champion.
        reason: scores of both, or why they could not be compared.
        champion: ordinal of the champion's trigger after the challenge; None where a deletion has left no champion.
    """

    trigger: int
    promoted: bool
    reason: str
    champion: int | None


def champions(models: Sequence[int], cells: Iterable[EvaluationRow], metric: str) -> list[Verdict]:
    """A verdict per model, in the order of their triggers.

    Two models are compared by their mean scores over the intervals where both have one: over those neither was trained on, or
    over all if there is none. The first model is the champion until another is at least as good. Without a common interval the
    champion stays.

    Args:
        models: ordinals of the triggers that have a model.
        cells: of the run, of any metric.
        metric: decides.

    >>> champions([1, 0], [], "log_loss")[1].reason
    'no interval yet where it and the champion, trigger 0, both have a log_loss'
    """
    scores: dict[int, dict[Interval, EvaluationRow]] = {model: {} for model in models}
    for cell in cells:
        if cell.metric == metric and cell.value is not None and cell.ordinal in scores:
            scores[cell.ordinal][cell.interval_start, cell.interval_end] = cell
    verdicts: list[Verdict] = []
    champion = min(models, default=-1)
    for model in sorted(models):
        if not verdicts:
            verdicts.append(Verdict(model, True, "the first model", model))
            continue
        promoted, reason = _challenge(scores[model], scores[champion], champion, metric)
        champion = model if promoted else champion
        verdicts.append(Verdict(model, promoted, reason, champion))
    return verdicts


def _challenge(
    challenger: Mapping[Interval, EvaluationRow], incumbent: Mapping[Interval, EvaluationRow], champion: int, metric: str
) -> tuple[bool, str]:
    common = sorted(challenger.keys() & incumbent.keys())
    if not common:
        return False, f"no interval yet where it and the champion, trigger {champion}, both have a {metric}"
    unseen = [i for i in common if not (challenger[i].seen_in_training or incumbent[i].seen_in_training)]
    intervals = unseen or common
    mean, bar = (sum(float(cells[i].value or 0) for i in intervals) / len(intervals) for cells in (challenger, incumbent))
    promoted = mean <= bar if lower_is_better(metric) else mean >= bar
    kind = "intervals" if unseen else "intervals, all of which one of them saw in training"
    scores = f"mean {metric} {mean:.6g} against {bar:.6g} of the champion (trigger {champion})"
    return promoted, f"{scores}, over {len(intervals)} {kind}"
