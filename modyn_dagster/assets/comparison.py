"""The asset ``<dataset>/comparison``: the pipelines of a dataset side by side, and its metadata."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final

import dagster as dg

from modyn_dagster.assets.metadata.entries import CHART, PICTURE, in_order, rounded, seconds_text, table_entry
from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.assets.tracking.links import MlflowLinks
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.settings import REPORT_PAGES
from modyn_dagster.spec.tasks.metrics import lower_is_better

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modyn_dagster.reporting.comparison import Comparison
    from modyn_dagster.reporting.tables import Table

#: Runs with a panel of their own in the picture of scores as known and final; the report has the lines of all.
_MOST_PANELS: Final = 4


def comparison_asset(assets: DatasetAssets) -> dg.AssetsDefinition:
    """Compare the runs that stand for the pipelines: the open live run, else the newest replay."""
    deps = [
        dg.AssetDep(pipeline.key(asset), partition_mapping=dg.AllPartitionMapping())
        for pipeline in assets.of_pipelines()
        for asset in ("evaluation", "replay")
    ]

    @dg.multi_asset(name=assets.op("comparison"), specs=[assets.spec("comparison").merge_attributes(deps=deps)])
    def comparison(
        context: dg.AssetExecutionContext, modyn: PlatformResource, modyn_mlflow: MlflowResource
    ) -> dg.MaterializeResult[None]:
        from modyn_dagster.pipeline.stages.evaluation.confusion import confusion_reader
        from modyn_dagster.reporting.comparison import compare_pipelines
        from modyn_dagster.reporting.page.document import write_report
        from modyn_dagster.reporting.page.plots import report_figures
        from modyn_dagster.reporting.page.records import read_report
        from modyn_dagster.reporting.plots.figures import png

        platform = modyn.platform()
        names = [pipeline.name for pipeline in assets.pipelines]
        page = platform.settings.reports_folder / f"{assets.dataset.name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with platform.transaction() as conn:
            compared = compare_pipelines(conn, names)
            title = f"Pipelines of {assets.dataset.name}"
            data = read_report(conn, names, title=title, confusion_of=confusion_reader(platform))
        write_report(data, page)
        figures = report_figures(data)
        drawn = {name: png(figure) for name, figure in figures.items()}
        metadata = {"Report": dg.MetadataValue.url(f"{REPORT_PAGES}/{page.name}")} | comparison_metadata(compared)
        metadata = in_order(metadata | report_images(figures, drawn) | {"report file": dg.MetadataValue.path(str(page))})
        links = MlflowLinks(context, modyn_mlflow, platform)
        with _files_of(drawn) as pictures:
            url = links.comparison(assets.dataset.name, compared.numbers(), [page, *pictures])
        if url is not None:
            metadata["mlflow"] = dg.MetadataValue.url(url)
        return dg.MaterializeResult(metadata=metadata)

    return comparison


def comparison_metadata(comparison: "Comparison") -> dict[str, Any]:
    """Best score, a table with the score first, plots, and per pipeline its score, seconds and samples as numbers."""
    from modyn_dagster.reporting.plots.figures import as_markdown
    from modyn_dagster.reporting.plots.late_scores import known_and_final
    from modyn_dagster.reporting.plots.runs import comparison_over_time, costs
    from modyn_dagster.reporting.plots.sparklines import sparkline
    from modyn_dagster.reporting.scores import final_scores
    from modyn_dagster.reporting.tables import comparison_table

    lines = {run.label: [score.value for score in run.summary.active] for run in comparison.runs}
    small = sparkline(PICTURE, lines)
    metadata: dict[str, Any] = {
        "Best score": _best(comparison),
        "Comparison": table_entry(_by_score(comparison)),
        **({PICTURE: dg.MetadataValue.md(small)} if small else {}),
        CHART: dg.MetadataValue.md(as_markdown(comparison_over_time(comparison))),
        "comparison in full": dg.MetadataValue.md(comparison_table(comparison).markdown()),
        "costs": dg.MetadataValue.md(as_markdown(costs(comparison))),
        "intervals": comparison.n_intervals,
        "shared_intervals": len(comparison.shared),
    }
    late = [run for run in comparison.runs if final_scores(run.summary.active)]
    if late:
        metadata["as known and final"] = dg.MetadataValue.md(as_markdown(known_and_final(late[:_MOST_PANELS])))
    for run in comparison.runs:
        metadata[f"{run.label}: triggers"] = run.summary.triggers.trained
        if run.summary.triggers.failed:
            metadata[f"{run.label}: failed triggers"] = run.summary.triggers.failed
        metadata[f"{run.label}: samples"] = run.summary.samples_trained_on
        metadata[f"{run.label}: seconds"] = rounded(run.summary.total_seconds)
        if run.score is not None:
            metadata[f"{run.label}: score"] = rounded(run.score)
        if run.summary.n_bytes is not None:
            metadata[f"{run.label}: bytes"] = run.summary.n_bytes
    for spread in comparison.spreads:
        if spread.score is not None:
            metadata[f"{spread.pipeline}: mean score of {len(spread.seeds)} seeds"] = rounded(spread.score.mean)
            metadata[f"{spread.pipeline}: deviation of the score"] = rounded(spread.score.deviation)
    return metadata


def _best(comparison: "Comparison") -> str:
    scored = [(run.score, run.label) for run in comparison.runs if run.score is not None]
    if not scored:
        return "none yet: no pipeline has run" if not comparison.runs else "none yet: the pipelines share no scored interval"
    score, label = min(scored) if lower_is_better(str(comparison.metric)) else max(scored)
    return f"{label}: {comparison.metric} {score:.4g}"


def _by_score(comparison: "Comparison") -> "Table":
    """Table of a line per run, with the score beside the name.

    Dagster's page has room for some 45 characters in a window of 1440 pixels, and cuts off the rest; samples and
    bytes are entries of their own.
    """
    from modyn_dagster.reporting.tables import ABSENT, Table

    rows: list[tuple[str, ...]] = []
    for run in comparison.runs:
        summary = run.summary
        rows.append(
            (
                run.label,
                ABSENT if run.score is None else f"{run.score:.4f}",
                f"{summary.triggers.trained}" + (f" ({failed} failed)" if (failed := summary.triggers.failed) else ""),
                seconds_text(summary.total_seconds),
            )
        )
    rows += [(name, "no run", *[ABSENT] * 2) for name in comparison.missing]
    return Table(("pipeline", comparison.metric or "score", "models", "time"), tuple(rows))


def report_images(figures: "Mapping[str, Figure]", drawn: Mapping[str, bytes]) -> dict[str, Any]:
    """The report's main plots as images that stand beside the numbers; ``drawn`` are their PNGs."""
    from modyn_dagster.reporting.plots.figures import as_markdown

    return {name: dg.MetadataValue.md(as_markdown(figure, drawn[name])) for name, figure in figures.items()}


@contextmanager
def _files_of(drawn: Mapping[str, bytes]) -> Iterator[list[Path]]:
    """Files ``<name>.png`` for the time of the block."""
    with TemporaryDirectory(prefix="modyn-pictures-") as folder:
        files = [Path(folder) / f"{name}.png" for name in drawn]
        for file, image in zip(files, drawn.values(), strict=True):
            file.write_bytes(image)
        yield files
