"""The asset ``<pipeline>/replay``: experiment mode, as a single-run backfill over a range of batches."""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.dagster_runs import log_training
from modyn_dagster.assets.metadata.stages import StageEvent, stage_events
from modyn_dagster.assets.specs import PipelineAssets, add_partitions, batches_of, triggers_of
from modyn_dagster.assets.tracking import MlflowLinks
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.resources.run_classes import replay_tags
from modyn_dagster.spec.triggers.trigger import measures

if TYPE_CHECKING:
    from modyn_dagster.catalog.results.evaluations import EvaluationRow
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.replay.run import ReplayRequest
    from modyn_dagster.pipeline.replay.walk import BatchReplayed
    from modyn_dagster.pipeline.stages.trigger_stages import StageResult


class ReplayConfig(dg.Config):
    """Options of a replay: name and seed that identify it, whether to restart, and runs to take triggers or costs from."""

    name: str = Field("", description="Name of the replay; launching the same name again continues it.")
    seed: int | None = Field(None, description="Seed; default: the pipeline's.")
    restart: bool = Field(False, description="Begin a new replay and leave the old one readable.")
    manual_of: int | None = Field(None, description="Id of the run whose manual triggers are repeated at the same keys.")
    costs_from: int | None = Field(
        None, description="Id of the run whose training seconds the policy is told instead of this replay's own."
    )


def replay_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Walk a range of batches in one run. Events come as it goes, so that a stopped replay shows how far it got."""
    partitions = batches_of(assets.dataset.name)
    spec = assets.spec("replay").merge_attributes(deps=[assets.samples_key()])

    @dg.multi_asset(
        name=assets.op("replay"),
        specs=[spec.replace_attributes(partitions_def=partitions, skippable=True)],
        backfill_policy=dg.BackfillPolicy.single_run(),
        op_tags=replay_tags(assets.name, assets.pipeline.seed),
        pool=f"replay__{assets.name}",
    )
    def replay(
        context: dg.AssetExecutionContext,
        config: ReplayConfig,
        modyn: PlatformResource,
        modyn_mlflow: MlflowResource,
        modyn_fast_path: FastPathResource,
    ) -> Iterator[StageEvent]:
        from modyn_dagster.pipeline.replay.run import ReplayRequest

        platform = modyn.platform()
        shown = _ReplayEvents(context, assets, MlflowLinks(context, modyn_mlflow, platform))
        options = config.model_dump(include=set(ReplayConfig.model_fields)) | {"fast_path": modyn_fast_path.settings()}
        yield from shown.events(platform, ReplayRequest(assets.name, context.partition_keys, context.run.run_id, **options))

    return replay


class _ReplayEvents:
    """A replay as Dagster and MLflow show it."""

    def __init__(self, context: dg.AssetExecutionContext, assets: PipelineAssets, links: MlflowLinks) -> None:
        self._context = context
        self._assets = assets
        self._links = links
        self._page: str | None = None
        self._shown: dict[dg.AssetKey, set[str]] = {}

    def events(self, platform: "Platform", request: "ReplayRequest") -> Iterator[StageEvent]:
        from modyn_dagster.errors import TriggerFailed
        from modyn_dagster.pipeline.replay.walk import BatchReplayed, replay
        from modyn_dagster.progress import replay_bar

        run = None
        try:
            with replay_bar(request.pipeline) as bars:
                # A terminal has its bars, a Dagster run its log.
                batches, training = (bars.batch, bars.training) if bars else (None, log_training(self._context.log.info))
                for event in replay(platform, request, batches, training):
                    if run is None:
                        run = event.run if isinstance(event, BatchReplayed) else event.context.run
                        self._page = self._links.run(run)
                    yield from self._batch(platform, event) if isinstance(event, BatchReplayed) else self._stage(event)
        except TriggerFailed:
            if run is not None:
                self._links.run(run)
            raise
        if run is not None:
            self._links.run(run)

    def _batch(self, platform: "Platform", event: "BatchReplayed") -> Iterator[StageEvent]:
        from modyn_dagster.assets.metadata.batches import replay_decision_metadata, replay_metadata

        metadata = replay_metadata(event, self._page)
        self._context.log.info(f"batch {event.batch.partition_key}: {metadata['triggers']} triggers")
        yield dg.AssetMaterialization(self._assets.key("replay"), partition=event.batch.partition_key, metadata=metadata)
        measured = replay_decision_metadata(platform, event) if measures(self._assets.pipeline.trigger) else None
        if measured is not None:
            key = self._assets.key("measurement")
            yield dg.AssetMaterialization(key, partition=event.batch.partition_key, metadata=measured)

    def _stage(self, event: "StageResult") -> Iterator[StageEvent]:
        if not event.fresh and self._is_shown(event):
            return
        add_partitions(self._context.instance, triggers_of(self._assets.name), [event.partition_key])
        yield from stage_events(self._assets, event, self._links.trigger(event.context))

    def _is_shown(self, event: "StageResult") -> bool:
        """True if Dagster shows a result that the replay read from the catalog; only events lost in a kill are repeated."""
        if isinstance(event.row, list):
            return self._shows_all_intervals(event.partition_key, event.row)
        key = self._assets.key(event.stage)
        if key not in self._shown:
            self._shown[key] = self._context.instance.get_materialized_partitions(key)
        return event.partition_key in self._shown[key]

    def _shows_all_intervals(self, partition_key: str, cells: "Sequence[EvaluationRow]") -> bool:
        """An evaluation is shown again and again as intervals close, so that it is there is not enough."""
        from modyn_dagster.assets.metadata.evaluations import INTERVALS, n_intervals

        places = dg.AssetRecordsFilter(self._assets.key("evaluation"), asset_partitions=[partition_key])
        records = self._context.instance.fetch_materializations(places, limit=1).records
        latest = records[0].asset_materialization if records else None
        return latest is not None and latest.metadata.get(INTERVALS) == dg.MetadataValue.int(n_intervals(cells))
