"""Comparison of two models as a table, as a path of bounds and as JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from modyn_dagster.evaluation.paired.comparison import PairedResult, PairedTest
from modyn_dagster.reporting.tables import ABSENT, Table

#: Rows of the path of bounds.
_PATH_ROWS = 10


@dataclass(frozen=True, slots=True)
class ModelComparison:
    """A test of a candidate against an incumbent, and the samples it is of.

    Attributes:
        candidate, incumbent: titles of the models.
        test: settings.
        result: verdict and bounds.
        scores: metric of candidate and incumbent on these samples; None where it is undefined.
        unlabelled, immature: samples left out.
        note: a sentence about samples that one of the two has not predicted; empty where there are none.
    """

    candidate: str
    incumbent: str
    test: PairedTest
    result: PairedResult
    scores: tuple[float | None, float | None]
    unlabelled: int = 0
    immature: int = 0
    note: str = ""

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON values; ``path`` is a list of columns by name, or None."""
        verdict, path = self.result
        return {
            "candidate": self.candidate,
            "incumbent": self.incumbent,
            "test": asdict(self.test),
            "candidate_score": self.scores[0],
            "incumbent_score": self.scores[1],
            **verdict.to_json(),
            "unlabelled": self.unlabelled,
            "immature": self.immature,
            "note": self.note,
            "path": None if path is None else {name: column.tolist() for name, column in path._asdict().items()},
        }


def verdict_table(comparison: ModelComparison) -> Table:
    """Table of one row: samples, scores, difference, interval and verdict; the caption gives the reason and what is left out."""
    verdict, test = comparison.result.verdict, comparison.test
    bounds, percent = verdict.bounds, f"{test.confidence * 100:.6g}%"
    row = (
        verdict.result,
        f"{verdict.n:,}",
        *map(_number, comparison.scores),
        _signed(verdict.difference),
        ABSENT if bounds is None else f"{bounds.low:+.4g} to {bounds.high:+.4g}",
    )
    header = ("verdict", "samples", "candidate", "incumbent", "difference", f"{percent} interval")
    title = f"{comparison.candidate} against {comparison.incumbent}: {test.metric}, {test.test}"
    lines = [f"{verdict.result}: {verdict.reason}"]
    if comparison.unlabelled or comparison.immature:
        left_out = {"without a label": comparison.unlabelled, "younger than evaluation.maturity": comparison.immature}
        lines.append("left out: " + ", ".join(f"{n:,} samples {why}" for why, n in left_out.items() if n))
    return Table(header, (row,), "\n".join([*lines, *([comparison.note] if comparison.note else [])]), title)


def path_table(comparison: ModelComparison) -> Table | None:
    """Table of the bounds along the stream, at ten numbers of samples; None for a test without a path."""
    path = comparison.result.path
    if path is None or len(path.n) == 0:
        return None
    rows = np.unique(np.linspace(0, len(path.n) - 1, _PATH_ROWS).round().astype(np.int64)).tolist()
    cells = tuple(
        (f"{path.n[i]:,}", _signed(path.mean[i]), _signed(path.lower[i]), _signed(path.upper[i]), _side(comparison, i))
        for i in rows
    )
    caption = f"one-sided bounds of the mean so far, which hold at all samples at once; the margin is {comparison.test.margin:g}"
    return Table(("samples", "difference", "lower bound", "upper bound", "verdict then"), cells, caption)


def _side(comparison: ModelComparison, row: int) -> str:
    path, margin = comparison.result.path, comparison.test.margin
    if path is None or path.n[row] < comparison.test.min_samples:
        return "undecided"
    return "better" if path.lower[row] > margin else "worse or equal" if path.upper[row] <= margin else "undecided"


def _number(value: float | None) -> str:
    return ABSENT if value is None else f"{value:.4g}"


def _signed(value: float | None) -> str:
    return ABSENT if value is None else f"{value:+.4g}"
