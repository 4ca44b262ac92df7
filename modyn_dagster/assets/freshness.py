"""The check ``fresh`` of ``<dataset>/samples``: whether data still arrive. Of the asset as a whole, not of a partition."""

from typing import TYPE_CHECKING, Final

import dagster as dg

from modyn_dagster.assets.specs import DatasetAssets
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from modyn_dagster.pipeline.checks import CheckResult

NAME: Final = "fresh"


def freshness_check(assets: DatasetAssets) -> dg.AssetChecksDefinition:
    """To be run by hand; the sensor ``freshness__<dataset>`` evaluates it without a run."""

    @dg.asset_check(
        asset=assets.key("samples"),
        name=NAME,
        description="Data still arrive: the newest ingested batch is younger than the dataset's `freshness`.",
    )
    def fresh(modyn: PlatformResource) -> dg.AssetCheckResult:
        from modyn_dagster.pipeline.freshness import freshness

        found = freshness(modyn.platform(), assets.dataset.name)
        return dg.AssetCheckResult(
            passed=found.passed, severity=dg.AssetCheckSeverity.ERROR, description=found.description, metadata=found.metadata
        )

    return fresh


def freshness_evaluation(key: dg.AssetKey, found: "CheckResult") -> dg.AssetCheckEvaluation:
    """What Dagster shows of it."""
    return dg.AssetCheckEvaluation(
        asset_key=key,
        check_name=NAME,
        passed=found.passed,
        severity=dg.AssetCheckSeverity.ERROR,
        description=found.description,
        metadata=found.metadata,
    )
