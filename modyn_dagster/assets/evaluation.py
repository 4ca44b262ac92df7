"""The asset ``<pipeline>/evaluation``: judging models, again whenever data have arrived; and the end of a training run."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.checks import check_outputs
from modyn_dagster.assets.dagster_runs import PERMANENT_TAG, reserved_for
from modyn_dagster.assets.live.backlog import backlog_events
from modyn_dagster.assets.live.unshown import made_up_events
from modyn_dagster.assets.metadata.stages import stage_events
from modyn_dagster.assets.promotion.shown import show_champions
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.assets.tracking.links import MlflowLinks
from modyn_dagster.assets.training import patient
from modyn_dagster.distributed.opening import open_pool
from modyn_dagster.resources.event_store import AssetEvent
from modyn_dagster.resources.fast_path import FastPathResource
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from modyn_dagster.data.view import DatasetView
    from modyn_dagster.pipeline.context import TriggerContext
    from modyn_dagster.pipeline.platform import Platform


class EvaluationConfig(dg.Config):
    """Models that one evaluation run scores."""

    triggers: list[str] = Field(
        [],
        description="Partition keys of the triggers whose models are judged; default: the run's own partition. "
        "One run for all of them is how the sensor asks when a batch has arrived.",
    )
    full: bool = Field(False, description="Judge them on every interval, as with `matrix: full`, whatever the spec says.")


def evaluation_asset(assets: PipelineAssets) -> dg.AssetsDefinition:
    """Predict and score what is missing of a trigger's model. Doing it again is cheap.

    It is the last op of a training, so here a run that the sensor requested takes the next triggers of a backlog.
    """

    @dg.multi_asset(**assets.of_trigger("evaluation", assets.key("model")))
    def evaluation(
        context: dg.AssetExecutionContext,
        config: EvaluationConfig,
        modyn: PlatformResource,
        modyn_mlflow: MlflowResource,
        modyn_fast_path: FastPathResource,
    ) -> Iterator[AssetEvent | dg.Output[None]]:
        from modyn_dagster.pipeline.promotion.gate_walk import advance_live
        from modyn_dagster.pipeline.stages.evaluation.evaluation_matrix import with_full_matrix

        platform = modyn.platform()
        links = MlflowLinks(context, modyn_mlflow, platform)
        triggers = config.triggers or [context.partition_key]
        judged = patient(context, platform, lambda: list(_judged(platform, assets.name, triggers)))
        if config.full:
            judged = [with_full_matrix(work) for work in judged]
        reserved = reserved_for(context, assets.pipeline, "evaluation")
        with reserved, open_pool(platform.settings.workers, at_once=False) as pool:
            yield from _events(context, assets, links, [replace(work, pool=pool) for work in judged])
            patient(context, platform, lambda: advance_live(platform, judged[-1].run) if judged[-1].run.mode == "live" else None)
            keys = [work.trigger.partition_key for work in judged]
            yield from made_up_events(context.instance, platform, assets, judged[-1].run, keys)
            yield from backlog_events(context, assets, platform, links, modyn_fast_path.settings(), pool)
        yield from show_champions(context, assets, platform)
        links.run(judged[-1].run)
        yield from check_outputs("evaluation", assets.key("evaluation"))

    return evaluation


def _events(
    context: dg.AssetExecutionContext, assets: PipelineAssets, links: MlflowLinks, judged: "Sequence[TriggerContext]"
) -> Iterator[AssetEvent]:
    """Events of each model; one that cannot be evaluated fails the run after the others are done.

    The run is tagged where every failure is permanent, so that the sensor does not ask for another attempt.
    """
    from modyn_dagster.errors import CatalogError, ModynError, StillFailing, is_permanent
    from modyn_dagster.pipeline.stages.evaluation.dealt import dealt_evaluations, with_equal_labels
    from modyn_dagster.pipeline.stages.trigger_stages import evaluation_stage

    failures: list[tuple[TriggerContext, Exception]] = []
    finished = judged[0].run.state == "finished"
    judged = patient(context, judged[0].platform, lambda: with_equal_labels(judged))
    for work, evaluated in zip(judged, dealt_evaluations(judged, finished=finished), strict=True):
        commit = partial(evaluation_stage, work, finished=work.run.state == "finished", evaluated=evaluated)
        try:
            result = patient(context, work.platform, commit)
        except (CatalogError, StillFailing):
            raise
        except Exception as error:
            if not (isinstance(error, ModynError) or is_permanent(error)):
                raise
            context.log.error(f"trigger {work.trigger.partition_key}: {type(error).__name__}: {error}")
            failures.append((work, error))
            continue
        yield from stage_events(assets, result, links.trigger(work))
    if failures:
        if all(_comes_again(work, error) for work, error in failures):
            context.instance.add_run_tags(context.run.run_id, {PERMANENT_TAG: "true"})
        raise failures[0][1]


def _comes_again(work: "TriggerContext", error: Exception) -> bool:
    """True if every attempt would meet the error; a file that a purge replaced meanwhile is read anew by the next one."""
    from modyn_dagster.errors import is_permanent
    from modyn_dagster.pipeline.decide.attempts import is_deletion

    with work.platform.transaction() as conn:
        return is_permanent(error) and not is_deletion(conn, work.platform, work.run, error)


def _judged(platform: "Platform", pipeline: str, keys: Sequence[str]) -> "Iterator[TriggerContext]":
    """Triggers with what their models are judged on: an open live run on all there is, any other on what it has seen."""
    from modyn_dagster.catalog.runs import get_run
    from modyn_dagster.catalog.triggers import find_trigger
    from modyn_dagster.pipeline.context import load_context

    views: dict[tuple[str, int | None, int | None], DatasetView] = {}
    for key in keys:
        with platform.transaction() as conn:
            trigger = find_trigger(conn, pipeline, key)
            run = get_run(conn, trigger.run_id)
            until = None if run.mode == "live" and run.is_open else run.last_ordinal
            if (seen := (run.spec_hash, until, run.hole_set_id)) not in views:
                views[seen] = platform.read_view_of(conn, run, until=until)
            context = load_context(conn, platform, run, trigger, views[seen])
        yield context
