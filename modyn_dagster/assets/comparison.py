"""The asset ``<dataset>/comparison``: the pipelines of a dataset side by side."""

import dagster as dg

from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.resources.platform import PlatformResource


def comparison_asset(assets: DatasetAssets) -> dg.AssetsDefinition:
    """Compare the runs that stand for the pipelines: the open live run, else the newest replay."""
    deps = [
        dg.AssetDep(pipeline.key(asset), partition_mapping=dg.AllPartitionMapping())
        for pipeline in assets.of_pipelines()
        for asset in ("evaluation", "replay")
    ]

    @dg.multi_asset(name=assets.op("comparison"), specs=[assets.spec("comparison").merge_attributes(deps=deps)])
    def comparison(modyn: PlatformResource) -> dg.MaterializeResult[None]:
        from modyn_dagster.assets.metadata_runs import comparison_metadata
        from modyn_dagster.reporting.comparison import compare_pipelines

        with modyn.platform().transaction() as conn:
            compared = compare_pipelines(conn, [pipeline.name for pipeline in assets.pipelines])
        return dg.MaterializeResult(metadata=comparison_metadata(compared))

    return comparison
