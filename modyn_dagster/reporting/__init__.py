"""Summaries, comparisons, tables and plots of pipeline runs, and MLflow as their display.

It reads the catalog and does not import Dagster. matplotlib, rich and mlflow are imported on first use.
"""

from modyn_dagster.catalog.runs import choose_run
from modyn_dagster.reporting.comparison import ComparedRun, Comparison, compare_pipelines, compare_runs
from modyn_dagster.reporting.mlflow.client import open_client
from modyn_dagster.reporting.mlflow.tracker import Tracker
from modyn_dagster.reporting.page.data import DecisionSeries, PipelineRecord, ReportData
from modyn_dagster.reporting.page.document import report_html, write_report
from modyn_dagster.reporting.page.records import read_report
from modyn_dagster.reporting.plots.figures import as_markdown, save
from modyn_dagster.reporting.plots.runs import (
    comparison_over_time,
    costs,
    epoch_stages,
    label_histogram,
    loss_curve,
    score_over_time,
)
from modyn_dagster.reporting.scores import IntervalScore, composite_series, mean_score
from modyn_dagster.reporting.summary import RunSummary, TriggerCounts, summarise_run
from modyn_dagster.reporting.tables import Table, comparison_table, scores_table

__all__ = [
    "ComparedRun",
    "Comparison",
    "DecisionSeries",
    "IntervalScore",
    "PipelineRecord",
    "ReportData",
    "RunSummary",
    "Table",
    "Tracker",
    "TriggerCounts",
    "as_markdown",
    "choose_run",
    "compare_pipelines",
    "compare_runs",
    "comparison_over_time",
    "comparison_table",
    "composite_series",
    "costs",
    "epoch_stages",
    "label_histogram",
    "loss_curve",
    "mean_score",
    "open_client",
    "read_report",
    "report_html",
    "save",
    "score_over_time",
    "scores_table",
    "summarise_run",
    "write_report",
]
