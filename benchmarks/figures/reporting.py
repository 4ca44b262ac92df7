"""The interactive report of many pipelines: time to build it, its size, and its response time in a browser."""

import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.measure import Contender, Machine, Run, Spread, interleave, timed
from benchmarks.report import Figure
from modyn_dagster.reporting.page.data import DecisionSeries, PipelineRecord, ReportData
from modyn_dagster.reporting.page.document import report_html, write_report
from modyn_dagster.reproducibility.randomness import rng_for

_METRICS: Final = ("accuracy", "f1_macro", "roc_auc", "log_loss")
_DAY: Final = np.timedelta64(86_400_000_000, "us")
_BEGIN: Final = np.datetime64("1900-01-01", "us")
_MOST_SECONDS: Final = 10.0
_MOST_MEGABYTES: Final = 12.0
_MOST_WAIT: Final = 2.0


def report_figures(machine: Machine, pipelines: int = 20, triggers: int = 100, intervals: int = 125) -> Iterator[Figure]:
    """``report.build``, ``report.size`` and, where there is a Chromium, ``report.interactive``."""
    data = _made_up(pipelines, triggers, intervals)
    what = f"{pipelines} pipelines x {triggers} triggers x {len(_METRICS)} metrics x {intervals} intervals"
    rounds = interleave({"build": timed(1, lambda: report_html(data))}, machine)
    yield Figure("report.build", f"{what}, built", rounds.seconds("build"), "s", _MOST_SECONDS, at_most=True)
    megabytes = len(report_html(data).encode()) / 1e6
    size = Spread(megabytes, megabytes, megabytes)
    yield Figure("report.size", "the same, with plotly.js", size, "MB", _MOST_MEGABYTES, at_most=True, note="always the same")
    chromium = shutil.which("chromium")
    waited = None
    if chromium is not None:
        with tempfile.TemporaryDirectory(prefix="report-") as folder:
            path = Path(folder) / "report.html"
            write_report(data, path)
            waited = interleave({"open": _opening(path, chromium)}, machine).seconds("open")
    note = "" if chromium else "no Chromium here"
    whole = "opened in Chromium until the table and the first plots answer"
    yield Figure("report.interactive", whole, waited, "s", _MOST_WAIT, at_most=True, note=note)


def _opening(path: Path, chromium: str) -> Contender:
    """Seconds from the address to a click that is answered: a pipeline deselected and gone from the table."""

    def opened() -> Run:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            begin = time.perf_counter()
            page.goto(path.as_uri(), wait_until="commit")
            page.wait_for_selector("#table tr:nth-child(2)")
            seconds = time.perf_counter() - begin
            browser.close()
        return Run(1, seconds)

    return opened


def _made_up(pipelines: int, triggers: int, intervals: int) -> ReportData:
    starts = _BEGIN + np.arange(intervals) * 365 * _DAY
    records = []
    for place in range(pipelines):
        rng = rng_for(0, "report", place)
        ends = _BEGIN + np.sort(rng.integers(0, intervals * 365, triggers)) * _DAY
        scores = rng.random(intervals)
        records.append(
            PipelineRecord(
                label=f"pipeline_{place:02d}",
                group=f"pipeline_{place:02d}",
                state="finished",
                train_ends=ends,
                n_samples=rng.integers(100, 5000, triggers),
                seconds={stage: rng.random(triggers) for stage in ("select", "train", "save", "evaluate")},
                matrices={metric: rng.random((triggers, intervals)) for metric in _METRICS},
                decisions=DecisionSeries(starts, scores, np.full(intervals, 0.8), scores > 0.8),
            )
        )
    return ReportData("Made up", starts, starts + 365 * _DAY, starts, _METRICS, tuple(records))
