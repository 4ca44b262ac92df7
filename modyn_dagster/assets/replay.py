"""The asset ``<pipeline>/replay``: experiment mode, as a single-run backfill over a range of batches."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from itertools import takewhile
from time import monotonic
from typing import TYPE_CHECKING, Final, TypeVar

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.dagster_runs import log_training, log_waits, reserved_for
from modyn_dagster.assets.metadata.evaluations import composite_metadata
from modyn_dagster.assets.metadata.stages import stage_events
from modyn_dagster.assets.promotion.shown import show_champions
from modyn_dagster.assets.specs import PipelineAssets, add_partitions, batches_of, triggers_of
from modyn_dagster.assets.tracking.behind import TrackingBehind, tracking_behind
from modyn_dagster.distributed.opening import open_pool
from modyn_dagster.resources.event_store import AssetEvent, keep_connections, show_at_once
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


T = TypeVar("T")


class ReplayConfig(dg.Config):
    """Options of a replay: name and seed that identify it, whether to restart, and runs to take triggers or costs from."""

    name: str = Field("", description="Name of the replay; launching the same name again continues it.")
    seed: int | None = Field(None, description="Seed; default: the pipeline's.")
    restart: bool = Field(False, description="Begin a new replay and leave the old one readable.")
    restart_of: int | None = Field(
        None, description="Begin a new replay only while this run is the newest one: launched again, the new one goes on."
    )
    manual_of: int | None = Field(None, description="Id of the run whose manual triggers are repeated at the same keys.")
    costs_from: int | None = Field(
        None, description="Id of the run whose training seconds the policy is told instead of this replay's own."
    )
    as_if_deleted: bool = Field(
        False, description="Begin a new replay as if the samples that are deleted now had never arrived; otherwise they count."
    )


def replay_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Walk a range of batches in one run. Events come every few seconds, so that a stopped replay shows how far it got."""
    partitions = batches_of(assets.dataset.name)
    spec = assets.spec("replay").merge_attributes(deps=[assets.samples_key()])

    @dg.multi_asset(
        name=assets.op("replay"),
        specs=[spec.replace_attributes(partitions_def=partitions, skippable=True)],
        backfill_policy=dg.BackfillPolicy.single_run(),
        # No pool: the queue keeps runs of one replay apart by their tags, so that a grid of seeds or names is parallel.
        op_tags=replay_tags(assets.pipeline),
    )
    def replay(
        context: dg.AssetExecutionContext,
        config: ReplayConfig,
        modyn: PlatformResource,
        modyn_mlflow: MlflowResource,
        modyn_fast_path: FastPathResource,
    ) -> Iterator[AssetEvent]:
        from modyn_dagster.pipeline.replay.run import ReplayRequest

        platform = modyn.platform()
        options = config.model_dump(include=set(ReplayConfig.model_fields)) | {"fast_path": modyn_fast_path.settings()}
        request = ReplayRequest(assets.name, context.partition_keys, context.run.run_id, **options)
        place = reserved_for(context, assets.pipeline, "replay")
        with place, tracking_behind(context, modyn_mlflow, platform) as links:
            yield from _ReplayEvents(context, assets, platform, links).events(request)

    return replay


#: Events wait for those that are shown with them: so many at most.
_MOST_EVENTS: Final = 500
#: Seconds after which events are shown whose pages in MLflow are there.
SHOW_AFTER: Final = 5.0


class _ReplayEvents:
    """A replay as Dagster and MLflow show it.

    Events wait until there are many, or the last ones are old enough, and MLflow has the pages that they link to.
    """

    def __init__(
        self,
        context: dg.AssetExecutionContext,
        assets: PipelineAssets,
        platform: "Platform",
        links: TrackingBehind,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._context = context
        self._assets = assets
        self._platform = platform
        self._links = links
        self._shown: dict[dg.AssetKey, set[str]] = {}
        self._waiting: list[BatchReplayed | StageResult] = []
        self._clock, self._last = clock, clock()
        self._say_waits = log_waits(context.log.warning)

    def events(self, request: "ReplayRequest") -> Iterator[AssetEvent]:
        from modyn_dagster.errors import TriggerFailed
        from modyn_dagster.pipeline.replay.walk import BatchReplayed, replay
        from modyn_dagster.progress import replay_bar

        run = None
        keep_connections(self._context.instance)
        try:
            with replay_bar(request.pipeline) as bars, open_pool(self._platform.settings.workers) as pool:
                # A terminal has its bars, a Dagster run its log.
                batches, training = (bars.batch, bars.training) if bars else (None, log_training(self._context.log.info))
                self._say_waits = self._both(bars.note) if bars else self._say_waits
                for event in replay(self._platform, request, batches, training, self._say_waits, pool):
                    if run is None:
                        run = event.run if isinstance(event, BatchReplayed) else event.context.run
                        self._links.name_run(run)
                    if isinstance(event, BatchReplayed):
                        self._waiting.append(event)
                        if event.is_last:
                            self._links.hurry()
                    elif event.fresh or not (self._waits(event) or self._patiently(partial(self._is_shown, event))):
                        self._links.name_trigger(event.context)
                        self._waiting.append(event)
                    if len(self._waiting) >= _MOST_EVENTS:
                        yield from self._patiently(self._shown_now)
                    elif self._clock() - self._last >= SHOW_AFTER and (ready := self._n_ready()):
                        yield from self._patiently(partial(self._shown_now, ready))
        except GeneratorExit:
            raise
        except BaseException as error:
            # The reason of the failure counts; events that do not get through are made up by the next launch.
            with suppress(Exception):
                yield from self._shown_now()
            if run is not None and isinstance(error, TriggerFailed):
                self._links.name_run(run)
            raise
        if run is not None:
            self._links.name_run(run)
        yield from self._patiently(self._shown_now)
        yield from show_champions(self._context, self._assets, self._platform)

    def _patiently(self, work: Callable[[], T]) -> T:
        """Result of something that reads or writes Dagster's storage, which may be down for a while."""
        from modyn_dagster.pipeline.decide.waiting import patiently

        return patiently(self._platform.settings.max_wait, work, self._say_waits)

    def _both(self, note: Callable[[str], None]) -> Callable[[str], None]:
        """Say a line in the terminal and in the log of the run."""
        log = self._say_waits

        def say(line: str) -> None:
            note(line)
            log(line)

        return say

    def _batch(self, event: "BatchReplayed", page: str | None) -> Iterator[AssetEvent]:
        from modyn_dagster.assets.metadata.decisions import replay_decision_metadata, replay_metadata

        metadata = replay_metadata(event, page)
        yield dg.AssetMaterialization(self._assets.key("replay"), partition=event.batch.partition_key, metadata=metadata)
        measured = replay_decision_metadata(self._platform, event) if measures(self._assets.pipeline.trigger) else None
        if measured is not None:
            key = self._assets.key("measurement")
            yield dg.AssetMaterialization(key, partition=event.batch.partition_key, metadata=measured)

    def _n_ready(self) -> int:
        """Number of events that wait, from the first one on, whose pages in MLflow are known."""
        return sum(1 for _ in takewhile(self._is_ready, self._waiting))

    def _is_ready(self, item: "BatchReplayed | StageResult") -> bool:
        from modyn_dagster.pipeline.stages.trigger_stages import StageResult

        links = self._links
        page = links.trigger_page(item.partition_key) if isinstance(item, StageResult) else links.run_page
        return page is not None or links.is_off

    def _shown_now(self, n: int | None = None) -> list[AssetEvent]:
        """Show the first events that wait in Dagster, in bulk, with links to MLflow; returns what the op has to yield itself.

        By default all of them, after a wait for their pages.
        """
        from modyn_dagster.pipeline.stages.trigger_stages import StageResult

        if n is None and self._n_ready() < len(self._waiting):
            self._links.wait()
        n = len(self._waiting) if n is None else n
        waiting, left_over = self._waiting[:n], self._waiting[n:]
        keys = dict.fromkeys(item.partition_key for item in waiting if isinstance(item, StageResult))
        if keys:
            add_partitions(self._context.instance, triggers_of(self._assets.name), list(keys))
        events: list[AssetEvent] = []
        composite = None
        for item in waiting:
            if not isinstance(item, StageResult):
                events += self._batch(item, self._links.run_page)
                continue
            if item.stage == "evaluation" and composite is None:
                # The same for all models of the run, and dearer than the rest.
                composite = composite_metadata(item.context)
            events += stage_events(self._assets, item, self._links.trigger_page(item.partition_key), composite)
        walked = [event.partition for event in events if event.asset_key == self._assets.key("replay")]
        if walked:
            self._context.log.info(f"batches {walked[0]} to {walked[-1]} are replayed; {len(keys)} triggers have news")
        left = list(show_at_once(self._context, events))
        self._waiting, self._last = left_over, self._clock()
        return left

    def _waits(self, event: "StageResult") -> bool:
        """True if the same result waits to be shown."""
        from modyn_dagster.pipeline.stages.trigger_stages import StageResult

        waiting = [item for item in self._waiting if isinstance(item, StageResult)]
        return any(
            (item.stage, item.partition_key, item.row) == (event.stage, event.partition_key, event.row) for item in waiting
        )

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
