"""Content of a comparison report, as plain arrays and texts."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from modyn_dagster.evaluation.composite.confusion import RunConfusion
from modyn_dagster.reporting.tables import Table

Times = npt.NDArray[np.datetime64]
Float64 = npt.NDArray[np.float64]
Counts = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class DecisionSeries:
    """Scores that a policy based its decisions on, in order of time; NaN for no threshold. All arrays have one length."""

    times: Times
    scores: Float64
    thresholds: Float64
    fired: npt.NDArray[np.bool_]


@dataclass(frozen=True, slots=True)
class PipelineRecord:
    """One run of one pipeline.

    Attributes:
        label: unique in the report.
        group: runs of one group are seeds of one pipeline.
        state: of the run, for example ``finished`` or ``active``.
        train_ends: last training time of every model, ``datetime64[us][models]``, in the order of training.
        n_samples: size of each training set, ``int64[models]``.
        seconds: by stage, ``float64[models]``.
        other_seconds: by stage, not of a model (deciding, measuring).
        matrices: by metric, ``float64[models, intervals]``; NaN for undefined and missing cells.
        decisions: scores behind its decisions; None for a policy that measures nothing.
        n_failed: triggers without a model.
        n_bytes: written to disk by all stages; None if the ledger has no bytes.
        lows, highs: ends of the confidence intervals, as ``matrices``; metrics without any may be missing.
        slices: matrices of parts of the samples, by name of the part, for example ``school=MIT``.
        slice_samples: samples of each part by interval, ``int64[intervals]``.
        label_delay: simulated delay of labels in words; None for none.
        pretrained_until: time up to which its pretrained model may have seen the data, as text; None for none.
        live: table of what was live when; None for a pipeline that promotes nothing.
        confusion: true against predicted classes of the composite models; None for regressions and without predictions.
    """

    label: str
    group: str
    state: str
    train_ends: Times
    n_samples: Counts
    seconds: Mapping[str, Float64]
    matrices: Mapping[str, Float64]
    other_seconds: Mapping[str, float] = field(default_factory=dict)
    decisions: DecisionSeries | None = None
    n_failed: int = 0
    n_bytes: int | None = None
    lows: Mapping[str, Float64] = field(default_factory=dict)
    highs: Mapping[str, Float64] = field(default_factory=dict)
    slices: Mapping[str, Mapping[str, Float64]] = field(default_factory=dict)
    slice_samples: Mapping[str, Counts] = field(default_factory=dict)
    confusion: RunConfusion | None = None
    label_delay: str | None = None
    pretrained_until: str | None = None
    live: Table | None = None

    @property
    def total_seconds(self) -> float:
        """Wall seconds of all stages."""
        return float(sum(values.sum() for values in self.seconds.values()) + sum(self.other_seconds.values()))


@dataclass(frozen=True, slots=True)
class ReportData:
    """Pipelines of one dataset on common intervals.

    Attributes:
        title: of the page.
        starts, ends, anchors: of the intervals, ``datetime64[us][intervals]``, in order of time.
        metrics: names; the first one is shown first. Every record has a matrix of each.
        pipelines: in the order of the page.
        missing: pipelines that never ran.
    """

    title: str
    starts: Times
    ends: Times
    anchors: Times
    metrics: tuple[str, ...]
    pipelines: tuple[PipelineRecord, ...]
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        labels = [pipeline.label for pipeline in self.pipelines]
        if len(set(labels)) != len(labels):
            raise ValueError(f"pipelines: labels must not repeat: {', '.join(labels)}")
        for pipeline in self.pipelines:
            shape = (len(pipeline.train_ends), len(self.starts))
            for metric in self.metrics:
                actual = pipeline.matrices[metric].shape if metric in pipeline.matrices else None
                if actual != shape:
                    rule = f"expected {shape}, models times intervals"
                    raise ValueError(f"{pipeline.label}: the matrix of {metric} has shape {actual}, {rule}")
