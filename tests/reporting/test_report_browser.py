"""Reports in a real browser: no error, no request, every plot labelled, and what is chosen is what is shown."""

import csv
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from modyn_dagster.evaluation import composite_scores, currently_active, currently_trained
from modyn_dagster.reporting.page.data import ReportData
from modyn_dagster.reporting.page.document import write_report
from modyn_dagster.reporting.promotion.tables import LIVE_HEADER
from modyn_dagster.reporting.tables import Table
from tests.reporting.made_up import a_confusion, a_report

CHROMIUM: Final = shutil.which("chromium")
PLOTS: Final = ("pareto", "over-time", "boxes", "triggers", "samples", "matrix", "slices", "decisions", "stages")

pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: as root, apt-get install chromium")


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        yield opened
        opened.close()


class Opened:
    """A report in a page of 1280 px, with what the browser complained about and asked for."""

    def __init__(self, browser: Browser, report: ReportData, folder: Path) -> None:
        path = folder / "report.html"
        write_report(report, path)
        self.page: Page = browser.new_page(viewport={"width": 1280, "height": 900})
        self.complaints: list[str] = []
        self.requests: list[str] = []
        self.page.on("console", lambda m: self.complaints.append(m.text) if m.type in ("error", "warning") else None)
        self.page.on("pageerror", lambda error: self.complaints.append(str(error)))
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(path.as_uri())
        self.wait()

    def wait(self) -> None:
        """Until everything on the screen is drawn."""
        self.page.wait_for_selector("body[data-complete=yes]")

    def choose(self, control: str, label: str) -> None:
        self.page.select_option(control, label=label)
        self.wait()

    def look_at(self, plot: str) -> None:
        """Scroll to a plot; it is drawn when it comes on the screen."""
        self.page.evaluate("id => document.getElementById(id).scrollIntoView({block: 'center'})", plot)
        self.page.wait_for_selector(f"#{plot}[data-drawn=yes]")

    def layout(self, plot: str) -> dict[str, Any]:
        """Titles, axes and note of a plot, as plotly has laid them out."""
        self.look_at(plot)
        found: dict[str, Any] = self.page.evaluate(
            """id => { const l = document.getElementById(id)._fullLayout;
            return {title: l.title.text, x: l.xaxis.title.text, y: l.yaxis.title.text, legend: l.showlegend,
                    shapes: l.shapes.map(s => [s.x0 + 0.5, s.y0 + 0.5]), notes: l.annotations.map(a => a.text),
                    size: [l.xaxis, l.yaxis].map(a => a.tickfont?.size ?? 99)} }""",
            plot,
        )
        return found

    def cells(self, row: int, table: str = "table") -> list[str]:
        cells = "([t, r]) => [...document.querySelectorAll(`#${t} tr`)[r].cells].map(c => c.textContent)"
        found: list[str] = self.page.evaluate(cells, [table, row])
        return found

    def download(self, table: str, folder: Path) -> list[list[str]]:
        """Rows of the file behind the link of a table."""
        with self.page.expect_download() as waiting:
            self.page.click(f"a[data-table={table}]")
        path = folder / waiting.value.suggested_filename
        waiting.value.save_as(path)
        with path.open(newline="", encoding="utf-8") as file:
            return list(csv.reader(file))

    def colours(self) -> tuple[str, str]:
        """Background of the page and of its first plot."""
        self.look_at("pareto")
        plot = self.page.evaluate("document.getElementById('pareto')._fullLayout.paper_bgcolor")
        return self.page.evaluate("getComputedStyle(document.body).backgroundColor"), plot

    def quiet(self) -> None:
        """Nothing went wrong, and the file itself was all that was fetched."""
        assert self.complaints == []
        assert all(request.startswith(("file:", "data:", "blob:")) for request in self.requests), self.requests
        assert len([request for request in self.requests if request.startswith("file:")]) == 1


def mean_of_active(report: ReportData, place: int, metric: str, among: np.ndarray[Any, Any]) -> float:
    record = report.pipelines[place]
    active = [np.flatnonzero(record.train_ends < anchor).max(initial=-1) for anchor in report.anchors]
    return float(np.mean([record.matrices[metric][active[i], i] for i in np.flatnonzero(among)]))


def both_active(report: ReportData, places: list[int]) -> np.ndarray[Any, Any]:
    firsts = [report.pipelines[place].train_ends.min() for place in places]
    return np.asarray(report.anchors > max(firsts))


def test_a_report_opens_without_error_or_request_and_every_plot_is_labelled(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([12, 30, 5, 9], 25, seeds=2), tmp_path)
    for plot in PLOTS:
        layout = opened.layout(plot)
        assert all(layout[part] for part in ("title", "x", "y")), (plot, layout)
        assert min(layout["size"]) >= 12, plot
        assert layout["legend"], plot
        assert opened.page.locator(f"#{plot} .legend, #{plot} .colorbar").count(), plot
    wide = opened.page.evaluate("document.documentElement.scrollWidth")
    assert wide <= 1280
    if folder := os.environ.get("MODYN_SCREENSHOTS"):
        opened.page.evaluate("window.dispatchEvent(new Event('beforeprint')); window.scrollTo(0, 0)")
        opened.page.screenshot(path=Path(folder) / "comparison-report.png", full_page=True)
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_table_holds_the_mean_over_the_intervals_where_all_chosen_have_an_active_model(
    browser: Browser, tmp_path: Path
) -> None:
    report = a_report([12, 4, 20], 25)
    opened = Opened(browser, report, tmp_path)
    everywhere = both_active(report, [0, 1, 2])
    for place in range(3):
        assert opened.cells(place + 1)[6] == f"{mean_of_active(report, place, 'accuracy', everywhere):.4f}"
    opened.page.locator("#pipelines input").nth(1).click()
    opened.wait()
    without = both_active(report, [0, 2])
    assert opened.cells(2)[0] == "pipeline_02"
    assert opened.cells(2)[6] == f"{mean_of_active(report, 2, 'accuracy', without):.4f}"
    opened.choose("#metric", "log_loss")
    assert opened.cells(1)[6] == f"{mean_of_active(report, 0, 'log_loss', without):.4f}"
    assert "lower is better" in opened.layout("over-time")["y"]
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_matrix_boxes_the_model_of_the_chosen_composite(browser: Browser, tmp_path: Path) -> None:
    report = a_report([6], 10)
    opened = Opened(browser, report, tmp_path)
    ends = report.pipelines[0].train_ends
    active = [int((ends < anchor).sum()) for anchor in report.anchors]
    assert opened.layout("matrix")["shapes"] == [[i, model] for i, model in enumerate(active) if model > 0]
    opened.choose("#composite", "currently trained")
    trained = [[i, min(model + 1, len(ends))] for i, model in enumerate(active)]
    assert opened.layout("matrix")["shapes"] == trained
    opened.quiet()


@pytest.mark.soak("screens")
@pytest.mark.parametrize(
    ("report", "note"),
    [
        (a_report([1], 3), ""),
        (a_report([1], 0), "no interval has been scored yet"),
        (a_report([0], 3, state="active"), "no model has been trained yet"),
        (a_report([0, 2], 0, state="active"), "no model has been trained yet"),
        (a_report([], 0, metrics=(), missing=("a", "b")), "no model has been trained yet"),
    ],
    ids=["one trigger", "no interval", "no trigger", "just begun", "no pipeline"],
)
def test_little_or_nothing_renders_too(browser: Browser, tmp_path: Path, report: ReportData, note: str) -> None:
    opened = Opened(browser, report, tmp_path)
    assert "".join(opened.layout("matrix")["notes"]) == note
    shown = opened.page.text_content("#note") or ""
    assert ("Still running" in shown) == any(record.state == "active" for record in report.pipelines)
    assert ("Never ran: a, b." in shown) == bool(report.missing)
    opened.quiet()


@pytest.mark.soak("screens")
def test_plots_off_the_screen_are_drawn_when_they_come_on_it(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([12, 4, 20], 25), tmp_path)
    drawn = "id => document.getElementById(id).dataset.drawn"
    assert (opened.page.evaluate(drawn, "table"), opened.page.evaluate(drawn, "stages")) == ("yes", "no")
    assert opened.layout("stages")["title"]
    opened.choose("#metric", "log_loss")
    assert opened.page.evaluate(drawn, "over-time") == "no"
    assert "log_loss" in opened.layout("over-time")["y"]
    opened.quiet()


@pytest.mark.soak("screens")
def test_printing_draws_everything(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([12, 4], 10), tmp_path)
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.page.evaluate("[...document.querySelectorAll('.plot')].map(plot => plot.dataset.drawn)") == ["yes"] * len(PLOTS)
    opened.quiet()


@pytest.mark.soak("screens")
def test_slices_and_confidence_bands_follow_metric_and_composite(browser: Browser, tmp_path: Path) -> None:
    report = a_report([6], 10)
    opened = Opened(browser, report, tmp_path)
    [record], drawn = report.pipelines, "document.getElementById('{}').data.map(t => [t.name, t.y])"
    opened.choose("#metric", "log_loss")
    opened.choose("#composite", "currently trained")
    chosen = currently_trained(record.train_ends, report.anchors)
    for plot in ("over-time", "slices"):
        opened.look_at(plot)
    found = opened.page.evaluate(drawn.format("slices"))
    assert [name for name, _ in found] == [*record.slices, "all samples"]
    for (name, values), part in zip(found, record.slices.values(), strict=False):
        assert values == pytest.approx(composite_scores(part["log_loss"], chosen), rel=1e-5), name
    low, high, line = (values for _, values in opened.page.evaluate(drawn.format("over-time")))
    assert low == pytest.approx(composite_scores(record.lows["log_loss"], chosen), rel=1e-5)
    assert all(a < b < c for a, b, c in zip(low, line, high, strict=True))
    opened.quiet()


@pytest.mark.soak("screens")
def test_scores_behind_triggers_stand_above_them_on_one_time_line(browser: Browser, tmp_path: Path) -> None:
    report = a_report([6, 4, 5], 10)
    opened = Opened(browser, report, tmp_path)
    opened.look_at("triggers")
    lines = "document.getElementById('triggers').data.filter(t => t.yaxis === 'y2' && t.name !== 'threshold')"
    traces = opened.page.evaluate(f"{lines}.map(t => [t.name, t.y])")
    expected = {r.label: r.decisions.scores / r.decisions.thresholds for r in report.pipelines if r.decisions is not None}
    assert dict(traces).keys() == expected.keys()
    for name, values in traces:
        assert values == pytest.approx(expected[name], rel=1e-4)
    assert opened.page.evaluate("document.getElementById('triggers')._fullLayout.yaxis2.title.text") == "score / threshold"
    opened.quiet()


@pytest.mark.soak("screens")
def test_several_seeds_have_a_line_of_means_and_deviations(browser: Browser, tmp_path: Path) -> None:
    report = a_report([3, 5], 10, seeds=2)
    opened = Opened(browser, report, tmp_path)
    cells = opened.cells(3)
    assert cells[:2] == ["pipeline_00: mean of 2 seeds", ""]
    everywhere = both_active(report, [0, 1])
    found = {
        2: [len(record.train_ends) for record in report.pipelines],
        3: [record.n_samples.sum() for record in report.pipelines],
        4: [record.total_seconds for record in report.pipelines],
        5: [(record.n_bytes or 0) / 1e6 for record in report.pipelines],
        6: [mean_of_active(report, place, "accuracy", everywhere) for place in (0, 1)],
    }
    for column, values in found.items():
        numbers = [float(number.replace(",", "")) for number in cells[column].split(" ± ")]
        assert numbers == pytest.approx([np.mean(values), np.std(values, ddof=1)], abs=0.51 if column == 3 else 0.051), column
    opened.quiet()


@pytest.mark.soak("screens")
def test_undefined_cells_leave_gaps_and_no_error(browser: Browser, tmp_path: Path) -> None:
    report = a_report([3], 6)
    holed = {metric: np.where(np.arange(6) == 3, np.nan, values) for metric, values in report.pipelines[0].matrices.items()}
    opened = Opened(browser, replace(report, pipelines=(replace(report.pipelines[0], matrices=holed),)), tmp_path)
    for plot in ("over-time", "matrix"):
        opened.look_at(plot)
    first_of = "document.getElementById('{}').data.{}"
    gap = [opened.page.evaluate(first_of.format(*place)) for place in (("over-time", "at(-1).y[3]"), ("matrix", "at(0).z[0][3]"))]
    assert gap == [None, None]
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_contents_lead_to_every_part_of_the_page(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([6], 10), tmp_path)
    links = opened.page.evaluate("[...document.querySelectorAll('nav a')].map(a => a.getAttribute('href').slice(1))")
    assert {plot for plot in PLOTS if plot != "slices"} <= set(links)
    for link in links:
        assert opened.page.locator(f"[id='{link}']").count() == 1, link
    opened.page.click("nav a[href='#slice-scores']")
    assert opened.page.locator("#slice-table").is_visible()
    opened.quiet()


@pytest.mark.soak("screens")
def test_every_table_is_a_file_with_exact_numbers_and_texts_that_no_spreadsheet_runs(browser: Browser, tmp_path: Path) -> None:
    report = a_report([6, 4], 10)
    live = Table(("model", "why"), (("4f3a9c0b17de", "=1+1"),))
    first = replace(report.pipelines[0], label='=cmd|"a", b', live=live)
    opened = Opened(browser, replace(report, pipelines=(first, report.pipelines[1])), tmp_path)
    for table in opened.page.evaluate("[...document.querySelectorAll('table')].map(t => t.id)"):
        assert len(opened.download(table, tmp_path)) == opened.page.locator(f"#{table} tr").count() > 1, table
    rows = opened.download("table", tmp_path)
    assert [row[0] for row in rows] == ["pipeline", """'=cmd|"a", b""", "pipeline_01"]
    assert float(rows[2][4]) == pytest.approx(report.pipelines[1].total_seconds, rel=1e-5)
    assert len(rows[2][6]) > len(opened.cells(2)[6])
    assert opened.download("live", tmp_path)[1] == ["4f3a9c0b17de", "'=1+1"]
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_confusion_matrix_is_that_of_the_chosen_composite(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([6], 10), tmp_path)
    assert opened.cells(0, "confusion") == ["true class", *(f"predicted class <{n}>" for n in range(3)), "samples"]
    assert opened.cells(2, "confusion") == ["class <1>", "0", "9", "1", "10"]
    assert opened.cells(1, "classes") == ["class <0>", "10", "10", "0.9000", "0.9000", "0.9000"]
    opened.choose("#composite", "currently trained")
    assert opened.cells(2, "confusion") == ["class <1>", "0", "18", "1", "19"]
    caption = opened.page.text_content("#confusion-caption") or ""
    assert "currently trained model of pipeline_00" in caption
    assert "57 samples of 4 intervals of 5" in caption
    opened.quiet()


@pytest.mark.soak("screens")
def test_of_many_classes_and_slices_the_worst_are_shown_and_without_predictions_no_matrix(
    browser: Browser, tmp_path: Path
) -> None:
    report = a_report([6, 3], 10)
    slices = {f"n={n:02d}": {m: v - n / 100 for m, v in report.pipelines[0].matrices.items()} for n in range(15)}
    counts = dict.fromkeys(slices, np.ones(10, np.int64))
    many = replace(report.pipelines[0], confusion=a_confusion(60), slices=slices, slice_samples=counts)
    opened = Opened(browser, replace(report, pipelines=(many, replace(report.pipelines[1], confusion=None))), tmp_path)
    assert "the 12 weakest slices of 15" in opened.layout("slices")["title"]
    drawn = opened.page.evaluate("document.getElementById('slices').data.map(t => t.name)")
    assert drawn == [*(f"n={n:02d}" for n in range(3, 15)), "all samples"]
    assert opened.page.locator("#slice-table tr").count() == 16
    assert opened.cells(1, "confusion") == ["class <0>", "class <1>", "1", "0.1000"]
    assert (opened.page.locator("#confusion tr").count(), opened.page.locator("#classes tr").count()) == (31, 51)
    assert "60 classes are too many" in (opened.page.text_content("#confusion-caption") or "")
    opened.choose("#focus", "pipeline_01")
    assert not opened.page.locator("#confusion-section").is_visible()
    assert not opened.page.locator("nav a[href='#confusion-section']").is_visible()
    opened.quiet()


@pytest.mark.soak("screens")
def test_slices_stand_in_a_table_the_weakest_first(browser: Browser, tmp_path: Path) -> None:
    report = a_report([6], 10)
    opened = Opened(browser, report, tmp_path)
    [record], everywhere = report.pipelines, both_active(report, [0])
    assert opened.cells(1, "slice-table")[:3] == ["school=B", "500", str(everywhere.sum())]
    assert opened.cells(1, "slice-table")[3] == f"{mean_of_active(report, 0, 'accuracy', everywhere) - 0.1:.4f}"
    assert opened.cells(1, "slice-table")[5] == "-0.1000"
    opened.choose("#metric", "log_loss")
    assert opened.cells(1, "slice-table")[0] == "school=A", "of a loss the larger one is the weaker one"
    assert list(record.slices) == ["school=A", "school=B"]
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_page_is_dark_where_the_reader_wants_it_and_paper_is_white(browser: Browser, tmp_path: Path) -> None:
    opened = Opened(browser, a_report([6, 4], 10), tmp_path)
    assert opened.colours() == ("rgb(255, 255, 255)", "#ffffff")
    opened.page.emulate_media(color_scheme="dark")
    opened.page.wait_for_function("document.getElementById('pareto')._fullLayout.paper_bgcolor === '#16191d'")
    assert opened.colours()[0] == "rgb(22, 25, 29)"
    opened.page.emulate_media(color_scheme="dark", media="print")
    opened.page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert opened.colours() == ("rgb(255, 255, 255)", "#ffffff")
    hidden = {part: opened.page.locator(part).is_visible() for part in ("nav", "#controls", "#pipelines", "#chosen", "#table")}
    assert hidden == {"nav": False, "#controls": False, "#pipelines": False, "#chosen": True, "#table": True}
    widths = opened.page.evaluate("[...document.querySelectorAll('.plot')].map(plot => plot._fullLayout.width)")
    assert set(widths) == {1000}, "the width of a sheet of paper"
    opened.page.evaluate("window.dispatchEvent(new Event('afterprint'))")
    opened.page.emulate_media(color_scheme="dark", media="screen")
    opened.wait()
    assert opened.colours()[1] == "#16191d"
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_estimate_of_a_metric_is_drawn_beside_it_with_its_interval(browser: Browser, tmp_path: Path) -> None:
    report = a_report([4], 8, ("accuracy", "estimated_accuracy", "log_loss"))
    opened = Opened(browser, report, tmp_path)
    [record], drawn = report.pipelines, "document.getElementById('over-time').data.map(t => [t.name, t.y])"
    chosen = currently_active(record.train_ends, report.anchors)
    opened.look_at("over-time")
    *_, low, high, (name, line) = opened.page.evaluate(drawn)
    assert name == f"estimated, {record.label}"
    for (_, found), matrices in zip((low, high, (name, line)), (record.lows, record.highs, record.matrices), strict=True):
        expected = composite_scores(matrices["estimated_accuracy"], chosen)
        assert [np.nan if value is None else value for value in found] == pytest.approx(expected, rel=1e-5, nan_ok=True)
    opened.choose("#metric", "log_loss")
    opened.look_at("over-time")
    assert not [name for name, _ in opened.page.evaluate(drawn) if "estimate" in name]
    opened.quiet()


@pytest.mark.soak("screens")
def test_the_final_score_of_a_metric_is_drawn_beside_the_one_as_known(browser: Browser, tmp_path: Path) -> None:
    report = a_report([4, 3], 8, ("accuracy", "log_loss", "accuracy (final)"))
    opened = Opened(browser, report, tmp_path)
    opened.look_at("over-time")
    drawn = "document.getElementById('over-time').data.map(t => [t.name, t.y])"
    found = dict(opened.page.evaluate(drawn))
    for record in report.pipelines:
        chosen = currently_active(record.train_ends, report.anchors)
        expected = composite_scores(record.matrices["accuracy (final)"], chosen)
        line = found[f"final, {record.label}"]
        assert [np.nan if value is None else value for value in line] == pytest.approx(expected, rel=1e-5, nan_ok=True)
    opened.choose("#metric", "log_loss")
    opened.look_at("over-time")
    assert not [name for name, _ in opened.page.evaluate(drawn) if "final" in name]
    opened.quiet()


@pytest.mark.soak("screens")
def test_what_was_live_when_is_shown_for_a_pipeline_that_promotes_and_for_no_other(browser: Browser, tmp_path: Path) -> None:
    report = a_report([12, 8], 25)
    reason = "on 1,412 samples the candidate is better by 0.031; with 97.5% confidence the true difference exceeds 0.004"
    rows = (
        (
            "4f3a9c0b17de",
            "000003-000000",
            "2026-03-01 04:00:12",
            "now",
            "2026-02-01 00:00:00",
            "now",
            "gate",
            reason,
            "0.9310 (4)",
        ),
        ("77aa9c0b17de", "000003-000002", "2026-03-01 04:00:12", "now", "–", "now", "ann", "<b>by hand</b>", "–"),
    )
    live = Table(LIVE_HEADER, rows, "score then: mean accuracy")
    report = replace(report, pipelines=(replace(report.pipelines[0], live=live), report.pipelines[1]))
    opened = Opened(browser, report, tmp_path)
    opened.look_at("live")
    assert opened.cells(0, "live") == list(LIVE_HEADER)
    assert [opened.cells(row, "live") for row in (1, 2)] == [list(row) for row in rows]
    assert opened.page.inner_text("#live-caption") == "score then: mean accuracy"
    # Reasons are sentences, and no one scrolls aside to read them.
    assert opened.page.evaluate("document.getElementById('live').scrollWidth") <= 1240
    assert opened.download("live", tmp_path)[1] == list(rows[0])
    if folder := os.environ.get("MODYN_SCREENSHOTS"):
        opened.page.locator("#live-section").screenshot(path=Path(folder) / "live-report.png")
    opened.choose("#focus", report.pipelines[1].label)
    assert not opened.page.is_visible("#live-section")
    assert not opened.page.is_visible("nav a[href='#live-section']")
    opened.quiet()
