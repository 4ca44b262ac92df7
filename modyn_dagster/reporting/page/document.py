"""Comparison page: one HTML file that works offline, with plotly.js and the data inside."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation import (
    composite_scores,
    currently_active,
    currently_trained,
    forgetting,
    past_intervals,
    regret,
    retention,
)
from modyn_dagster.imports import require
from modyn_dagster.reporting.page.confusion import confusion_content
from modyn_dagster.reporting.page.data import DecisionSeries, PipelineRecord, ReportData, Times
from modyn_dagster.spec.tasks.metrics import lower_is_better
from modyn_dagster.storage import atomic_write

_SIGNIFICANT: Final = 6
#: Parts of the page's script, in order.
_SCRIPTS: Final = ("scores", "tables", "plots", "single", "page")


def write_report(data: ReportData, path: Path) -> None:
    """Write the page; ``WriteFailed`` if the write fails."""
    with atomic_write(path) as file:
        file.write(report_html(data).encode())


def report_html(data: ReportData) -> str:
    """Render the page: a table and plots, with a choice of metric, composite, pipelines and costs.

    Equal data give equal pages. Matrices are stored as float32: numbers on the page have seven digits.
    """
    require("plotly", "the report")
    from plotly.offline import get_plotlyjs

    # A name may contain the end tag of a script element.
    content = json.dumps(_content(data), separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    parts = {"TITLE": html.escape(data.title), "STYLE": _file("report.css"), "PLOTLY": get_plotlyjs()}
    parts |= {"DATA": content, "SCRIPT": "".join(_file(f"{name}.js") for name in _SCRIPTS)}
    # Split once: an inserted text may itself contain a placeholder.
    pieces = re.split(r"\{\{([A-Z]+)\}\}", _file("report.html"))
    return "".join(parts[piece] if i % 2 else piece for i, piece in enumerate(pieces))


def _content(data: ReportData) -> dict[str, Any]:
    return {
        "title": data.title,
        "starts": _times(data.starts),
        "ends": _times(data.ends),
        "metrics": [{"name": metric, "lower": lower_is_better(metric)} for metric in data.metrics],
        "pipelines": [_pipeline(record, data) for record in data.pipelines],
        "missing": list(data.missing),
    }


def _pipeline(record: PipelineRecord, data: ReportData) -> dict[str, Any]:
    chosen = {
        "active": currently_active(record.train_ends, data.anchors),
        "trained": currently_trained(record.train_ends, data.anchors),
    }

    live = record.live

    def series(values: npt.NDArray[np.float64]) -> dict[str, list[float | None]]:
        return {name: _numbers(composite_scores(values, choice)) for name, choice in chosen.items()}

    return {
        "label": record.label,
        "group": record.group,
        "state": record.state,
        "labelDelay": record.label_delay,
        "pretrainedUntil": record.pretrained_until,
        "trainEnds": _times(record.train_ends),
        "samples": record.n_samples.tolist(),
        "failed": record.n_failed,
        "stages": {stage: _numbers(values) for stage, values in record.seconds.items()},
        "otherSeconds": {stage: _number(value) for stage, value in record.other_seconds.items()},
        "totalSeconds": _number(record.total_seconds),
        "bytes": record.n_bytes,
        **{name: choice.tolist() for name, choice in chosen.items()},
        "bands": {
            metric: {name: [series(low)[name], series(record.highs[metric])[name]] for name in chosen}
            for metric, low in record.lows.items()
        },
        "slices": {
            part: {metric: series(values) for metric, values in matrices.items()} for part, matrices in record.slices.items()
        },
        "sliceSamples": {part: int(counts.sum()) for part, counts in record.slice_samples.items()},
        "confusion": confusion_content(record.confusion),
        "live": None if live is None else {"header": live.header, "rows": live.rows, "caption": live.caption},
        "matrices": {metric: _floats(record.matrices[metric]) for metric in data.metrics},
        "summaries": {metric: _summary(record, data, metric) for metric in data.metrics},
        "decisions": None if record.decisions is None else _decisions(record.decisions),
    }


def _summary(record: PipelineRecord, data: ReportData, metric: str) -> Mapping[str, float | None]:
    """Numbers that do not depend on the other pipelines: retention and forgetting of the last model, and regret."""
    values, loss = record.matrices[metric], lower_is_better(metric)
    past = past_intervals(record.train_ends, data.ends)
    retained, forgotten = retention(values, past), forgetting(values, past, lower_is_better=loss)
    ordered = bool((np.diff(record.train_ends.astype(np.int64)) >= 0).all())
    hindsight = regret(values, record.train_ends, data.anchors, lower_is_better=loss) if ordered else None
    return {
        "retention": _number(retained[-1]) if len(retained) else None,
        "forgetting": _number(forgotten[-1]) if len(forgotten) else None,
        "regret": None if hindsight is None else _number(hindsight.value),
    }


def _decisions(series: DecisionSeries) -> dict[str, Any]:
    return {
        "times": _times(series.times),
        "scores": _numbers(series.scores),
        "thresholds": _numbers(series.thresholds),
        "fired": np.flatnonzero(series.fired).tolist(),
    }


def _times(times: Times) -> list[int]:
    """Milliseconds since 1970, as in JavaScript."""
    return [int(t) for t in times.astype("datetime64[ms]").astype(np.int64)]


def _numbers(values: npt.NDArray[np.float64]) -> list[float | None]:
    return [_number(value) for value in values.tolist()]


def _number(value: float) -> float | None:
    return float(f"{value:.{_SIGNIFICANT}g}") if np.isfinite(value) else None


def _floats(values: npt.NDArray[np.float64]) -> str:
    """Rows as little-endian float32 in base64: a third of the size of the same numbers as text."""
    return base64.b64encode(np.ascontiguousarray(values, dtype="<f4").tobytes()).decode("ascii")


def _file(name: str) -> str:
    return files(__package__).joinpath(name).read_text(encoding="utf-8")
