"""The asset ``<dataset>/comparison``: the pipelines of a dataset side by side, and its metadata."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import dagster as dg

from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.assets.tracking import MlflowLinks
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from modyn_dagster.reporting.comparison import Comparison


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

        platform = modyn.platform()
        names = [pipeline.name for pipeline in assets.pipelines]
        page = platform.home / "reports" / f"{assets.dataset.name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with platform.transaction() as conn:
            compared = compare_pipelines(conn, names)
            title = f"Pipelines of {assets.dataset.name}"
            data = read_report(conn, names, title=title, confusion_of=confusion_reader(platform))
        write_report(data, page)
        figures = report_figures(data)
        metadata = comparison_metadata(compared) | report_images(figures) | {"report": dg.MetadataValue.path(str(page))}
        links = MlflowLinks(context, modyn_mlflow, platform)
        if (url := links.comparison(assets.dataset.name, compared.numbers(), page, figures)) is not None:
            metadata["mlflow"] = dg.MetadataValue.url(url)
        return dg.MaterializeResult(metadata=metadata)

    return comparison


def comparison_metadata(comparison: "Comparison") -> dict[str, Any]:
    """The table and the plots, and per pipeline its score, seconds and samples as numbers."""
    from modyn_dagster.reporting.plots.figures import as_markdown
    from modyn_dagster.reporting.plots.runs import comparison_over_time, costs
    from modyn_dagster.reporting.tables import comparison_table

    metadata: dict[str, Any] = {
        "comparison": dg.MetadataValue.md(comparison_table(comparison).markdown()),
        "score_over_time": dg.MetadataValue.md(as_markdown(comparison_over_time(comparison))),
        "costs": dg.MetadataValue.md(as_markdown(costs(comparison))),
        "intervals": comparison.n_intervals,
        "shared_intervals": len(comparison.shared),
    }
    for run in comparison.runs:
        metadata[f"{run.label}: triggers"] = run.summary.triggers.trained
        metadata[f"{run.label}: samples"] = run.summary.samples_trained_on
        metadata[f"{run.label}: seconds"] = run.summary.total_seconds
        if run.score is not None:
            metadata[f"{run.label}: score"] = run.score
        if run.summary.n_bytes is not None:
            metadata[f"{run.label}: bytes"] = run.summary.n_bytes
    for spread in comparison.spreads:
        if spread.score is not None:
            metadata[f"{spread.pipeline}: mean score of {len(spread.seeds)} seeds"] = spread.score.mean
            metadata[f"{spread.pipeline}: deviation of the score"] = spread.score.deviation
    return metadata


def report_images(figures: "Mapping[str, Figure]") -> dict[str, Any]:
    """The report's main plots as images that stand beside the numbers."""
    from modyn_dagster.reporting.plots.figures import as_markdown

    return {name: dg.MetadataValue.md(as_markdown(figure)) for name, figure in figures.items()}
