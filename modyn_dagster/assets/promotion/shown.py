"""Changes of the champion that Dagster does not show: by this run, by a run that was killed, or from the command line.

The catalog is the truth. The newest materialization of ``<pipeline>/champion`` names the last change that is shown; whoever comes
first shows the later ones, each with its check in one transaction, and nobody shows one twice. Scores of the champion change
after its materialization: an observation shows what was live when with the scores of now.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from modyn_dagster.assets.metadata.champions import (
    EVENT,
    HISTORY,
    RUN,
    champion_check,
    champion_metadata,
    history_digest,
    score_metadata,
)
from modyn_dagster.assets.metadata.entries import DETAILS
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.resources.event_store import AssetEvent, report_in_bulk, show_at_once

if TYPE_CHECKING:
    import sqlalchemy as sa

    from modyn_dagster.catalog.results.promotions import PromotionRow
    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.pipeline.platform import Platform


def show_champions(context: dg.AssetExecutionContext, assets: PipelineAssets, platform: "Platform") -> Iterator[AssetEvent]:
    """Show the changes of the champion that are not shown, and scores that have changed, as events of this run."""
    for run, events, change in _unshown(context.instance, platform, assets):
        made = _events(assets, platform, run, events, change)
        with platform.transaction() as conn:
            if _is_new(conn, context.instance, assets, run, change):
                yield from show_at_once(context, made)
    _show_scores(context.instance, assets, platform, context.log_event)


def report_champions(instance: dg.DagsterInstance, assets: PipelineAssets, platform: "Platform") -> None:
    """Show the same as events of no run, where no asset's op is under way."""
    for run, events, change in _unshown(instance, platform, assets):
        made = _events(assets, platform, run, events, change)
        with platform.transaction() as conn:
            if _is_new(conn, instance, assets, run, change) and not report_in_bulk(instance, made):
                for event in made:
                    instance.report_runless_asset_event(event)
    _show_scores(instance, assets, platform, instance.report_runless_asset_event)


def check_again(assets: PipelineAssets, platform: "Platform") -> Iterator[dg.AssetCheckEvaluation]:
    """Take the check of the present champion again; nothing without one."""
    run, events = _standing_events(platform, assets)
    crowned = [event for event in events if event.state == "champion"]
    if run is not None and crowned:
        yield champion_check(assets.key("champion"), platform, run, events, crowned[-1])


def unshown_champion(instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets, run: "RunRow") -> str:
    """Name of the newest change of the champion of a live run that Dagster does not show; empty where it shows all."""
    newest = [change for found, _, change in _unshown(instance, platform, assets) if found.id == run.id]
    return f".promotion {newest[-1].number}" if newest else ""


def _unshown(
    instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets
) -> "list[tuple[RunRow, Sequence[PromotionRow], PromotionRow]]":
    """Changes of the champion that are not shown, with the run and all its events."""
    run, events = _standing_events(platform, assets)
    if run is None:
        return []
    shown = last_shown(instance, assets)
    return [(run, events, each) for each in events if each.state == "champion" and (each.run_id, each.number) > shown]


def _standing_events(platform: "Platform", assets: PipelineAssets) -> "tuple[RunRow | None, Sequence[PromotionRow]]":
    """Newest live run of a pipeline that promotes, or its newest replay where it was never live, and the events of its gate."""
    from modyn_dagster.catalog.results.promotions import list_promotions
    from modyn_dagster.catalog.runs import list_runs

    if assets.pipeline.promotion is None:
        return None, []
    with platform.transaction() as conn:
        runs = list_runs(conn, assets.name)
        standing = ([run for run in runs if run.mode == "live"] or runs)[-1:]
        return (standing[0], list_promotions(conn, standing[0].id)) if standing else (None, [])


def last_shown(instance: dg.DagsterInstance, assets: PipelineAssets) -> tuple[int, int]:
    """Run and number of the last change that Dagster shows; (-1, -1) before the first."""
    entry = instance.get_latest_materialization_event(assets.key("champion"))
    made = None if entry is None else entry.asset_materialization
    found = None if made is None else made.metadata.get(DETAILS)
    content = found.value if found is not None else None
    return (content[RUN], content[EVENT]) if isinstance(content, dict) and RUN in content else (-1, -1)


def _show_scores(
    instance: dg.DagsterInstance, assets: PipelineAssets, platform: "Platform", show: "Callable[[dg.AssetObservation], None]"
) -> None:
    """Show what was live when with the scores of now, unless the newest event of the champion does."""
    from modyn_dagster.catalog.results.promotions import gate_of
    from modyn_dagster.reporting.promotion.live_history import read_history

    run, _ = _standing_events(platform, assets)
    if run is None:
        return
    with platform.transaction() as conn:
        history = read_history(conn, run)
        if history is None or not history.periods or history_digest(run, history) == _shown_history(instance, assets):
            return
        gate_of(conn, run.id, lock=True)
        if history_digest(run, history) != _shown_history(instance, assets):
            show(dg.AssetObservation(assets.key("champion"), metadata=score_metadata(run, history)))


def _shown_history(instance: dg.DagsterInstance, assets: PipelineAssets) -> object:
    """Digest of the champions and scores that the newest event of the champion shows; None before the first."""
    key = assets.key("champion")
    newest = [*instance.fetch_materializations(key, limit=1).records, *instance.fetch_observations(key, limit=1).records]
    records = sorted(newest, key=lambda record: record.storage_id)
    events = [record.asset_materialization or record.asset_observation for record in records]
    found = events[-1].metadata.get(DETAILS) if events and events[-1] is not None else None
    return found.value.get(HISTORY) if found is not None and isinstance(found.value, dict) else None


def _is_new(
    conn: "sa.Connection", instance: dg.DagsterInstance, assets: PipelineAssets, run: "RunRow", change: "PromotionRow"
) -> bool:
    """Test that nobody has shown a change meanwhile, while nobody else can: until the transaction ends, the gate is held."""
    from modyn_dagster.catalog.results.promotions import gate_of

    gate_of(conn, run.id, lock=True)
    return (change.run_id, change.number) > last_shown(instance, assets)


def _events(
    assets: PipelineAssets, platform: "Platform", run: "RunRow", events: "Sequence[PromotionRow]", change: "PromotionRow"
) -> list[AssetEvent]:
    key = assets.key("champion")
    metadata = champion_metadata(platform, run, events, change)
    return [dg.AssetMaterialization(key, metadata=metadata), champion_check(key, platform, run, events, change)]
