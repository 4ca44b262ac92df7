"""The asset ``<dataset>/comparison``: the pipelines of a dataset side by side."""

import dagster as dg

from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.assets.tracking import MlflowLinks
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource


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
        from modyn_dagster.assets.metadata_runs import comparison_metadata, report_images
        from modyn_dagster.reporting.comparison import compare_pipelines
        from modyn_dagster.reporting.report_catalog import read_report
        from modyn_dagster.reporting.report_page import write_report
        from modyn_dagster.reporting.report_plots import report_figures

        platform = modyn.platform()
        names = [pipeline.name for pipeline in assets.pipelines]
        page = platform.home / "reports" / f"{assets.dataset.name}.html"
        page.parent.mkdir(parents=True, exist_ok=True)
        with platform.transaction() as conn:
            compared = compare_pipelines(conn, names)
            data = read_report(conn, names, title=f"Pipelines of {assets.dataset.name}")
        write_report(data, page)
        figures = report_figures(data)
        metadata = comparison_metadata(compared) | report_images(figures) | {"report": dg.MetadataValue.path(str(page))}
        links = MlflowLinks(context, modyn_mlflow, platform)
        if (url := links.comparison(assets.dataset.name, compared.numbers(), page, figures)) is not None:
            metadata["mlflow"] = dg.MetadataValue.url(url)
        return dg.MaterializeResult(metadata=metadata)

    return comparison
