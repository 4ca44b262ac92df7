"""Verdict of a paired test: better, worse or equal, or undecided, with the numbers and a sentence that says why."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Self

Result = Literal["better", "worse or equal", "undecided"]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of the mean difference, in the unit of the metric; positive numbers are in favour of the candidate.

    Attributes:
        lower, upper: each holds alone with the confidence of the test; the verdict is read from them.
        low, high: interval that holds with that confidence as a whole, for display.
    """

    lower: float
    upper: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PairedVerdict:
    """Result of a candidate's test against an incumbent.

    Attributes:
        result: ``better`` where the lower bound exceeds the margin, ``worse or equal`` where the upper bound does not, else
            ``undecided``. So a model is never called worse because little is known of it.
        reason: one sentence with number of samples, difference and bounds.
        n: pairs of predictions.
        difference: mean difference, positive in favour of the candidate; None where there is none.
        bounds: None where there are none.
        margin: difference that the candidate has to exceed.
        confidence: of each bound that the verdict is read from.
    """

    result: Result
    reason: str
    n: int
    difference: float | None
    bounds: Bounds | None
    margin: float
    confidence: float

    def to_json(self) -> Mapping[str, Any]:
        """Fields as JSON values."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned.

        >>> verdict = undecided("3 samples", 3, margin=0, confidence=0.95)
        >>> PairedVerdict.of_json(verdict.to_json()) == verdict
        True
        """
        bounds = content["bounds"]
        return cls(**{**content, "bounds": None if bounds is None else Bounds(**bounds)})


def judged(n: int, difference: float, bounds: Bounds, *, margin: float, confidence: float) -> PairedVerdict:
    """Read the verdict from the bounds of a difference.

    >>> judged(900, 0.031, Bounds(0.004, 0.058, 0.001, 0.061), margin=0, confidence=0.95).reason
    'on 900 samples the candidate is better by 0.031; with 95% confidence the true difference exceeds 0.004, and the margin is 0'
    """
    result: Result = "undecided"
    found = f"may be anything from {bounds.lower:.4g} to {bounds.upper:.4g}"
    if bounds.lower > margin:
        result, found = "better", f"exceeds {bounds.lower:.4g}"
    elif bounds.upper <= margin:
        result, found = "worse or equal", f"is at most {bounds.upper:.4g}"
    percent = f"{confidence * 100:.6g}%"
    reason = (
        f"on {n:,} samples the candidate is {_by(difference)}; with {percent} confidence the true difference {found}, "
        f"and the margin is {margin:g}"
    )
    return PairedVerdict(result, reason, n, difference, bounds, margin, confidence)


def undecided(reason: str, n: int, *, margin: float, confidence: float) -> PairedVerdict:
    """Leave the verdict open, for a reason other than the bounds: too few samples, or a metric that is undefined."""
    return PairedVerdict("undecided", reason, n, None, None, margin, confidence)


def _by(difference: float) -> str:
    if difference == 0:
        return "neither better nor worse"
    return f"{'better' if difference > 0 else 'worse'} by {abs(difference):.4g}"
