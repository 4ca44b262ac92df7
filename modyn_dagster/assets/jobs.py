"""Jobs: those the sensors launch, ``trigger_now__<pipeline>``, ``notify__<pipeline>``, ``retention`` and ``model_store_gc``."""

import warnings
from typing import Any

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.dagster_runs import log_counts
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.pipeline.operate.notification.since import parse_since
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.model_store import ModelStoreResource
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.notification.notify import NotifySpec

# Owners of jobs are in beta in Dagster 1.13, which says so for every job, and again where it resolves one by itself.
warnings.filterwarnings("ignore", message="Parameter `owners` of", category=dg.BetaWarning)

#: What ``dagster.define_asset_job`` returns; Dagster does not export its class.
AssetJob = Any


def train_job(assets: PipelineAssets) -> AssetJob:
    """One trigger, from selection to evaluation, in one process: torch is imported once."""
    selection = dg.AssetSelection.assets(*(assets.key(asset) for asset in ("training_set", "model", "evaluation")))
    return dg.define_asset_job(
        f"train__{assets.name}",
        selection,
        description=f"Select, train and evaluate one trigger of {assets.name}.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
        owners=assets.pipeline.owners,
    )


def evaluate_job(assets: PipelineAssets) -> AssetJob:
    """Judge models of a pipeline on what has arrived since."""
    return dg.define_asset_job(
        f"evaluate__{assets.name}",
        dg.AssetSelection.assets(assets.key("evaluation")),
        description=f"Judge models of {assets.name} on data that arrived after they were trained.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
        owners=assets.pipeline.owners,
    )


def measure_job(assets: PipelineAssets) -> AssetJob:
    """Measure what the triggering policy of a pipeline needs next."""
    return dg.define_asset_job(
        f"measure__{assets.name}",
        dg.AssetSelection.assets(assets.key("measurement")),
        description=f"Measure what the triggering policy of {assets.name} needs to decide.",
        executor_def=dg.in_process_executor,
        tags=_ended_in_time(assets),
        owners=assets.pipeline.owners,
    )


def _ended_in_time(assets: PipelineAssets) -> dict[str, str]:
    """Dagster's run monitoring ends a run that takes longer, and the sensor asks for the next attempt."""
    return {"dagster/max_runtime": str(seconds_of(assets.pipeline.max_run_time))}


@dg.op(description="Remove the files and models that no `retention` of a pipeline keeps.")
def apply_retention(context: dg.OpExecutionContext, modyn: PlatformResource, modyn_mlflow: MlflowResource) -> None:
    """Remove files and models beyond what the pipelines keep, and checkpoints that nothing will go on from; rows stay."""
    from modyn_dagster.pipeline.operate.retention import apply_retention as apply

    removed = apply(modyn.platform(), modyn_mlflow.aliased_models)
    counts = f"{removed.training_sets} training sets, {removed.predictions} prediction files, {removed.models.n_models} models"
    context.log.info(f"removed {counts}")
    for pipeline in removed.models.unanswered:
        context.log.warning(f"all models of {pipeline} stay: MLflow does not answer, and its retention names aliases there")
    context.add_output_metadata(
        {
            "training_sets": removed.training_sets,
            "predictions": removed.predictions,
            "optimizers": removed.optimizers,
            "checkpoints": removed.checkpoints,
            "models": removed.models.n_models,
            "bytes": removed.n_bytes + removed.models.n_bytes,
        }
    )


@dg.job(description="Apply every pipeline's `retention`.", executor_def=dg.in_process_executor)
def retention() -> None:
    """Launch it by hand, or let the schedule."""
    apply_retention()


class TriggerNowConfig(dg.Config):
    """Author of a manual trigger, and the reason."""

    note: str = Field("", description="Recorded with the trigger: `manual: <note>` is its reason.")


class NotifyConfig(dg.Config):
    """Events that a run tells of."""

    since: str = Field(
        description="What happened at or after this moment, ISO 8601; or a JSON object with such moments by channel."
    )


def trigger_now_job(assets: PipelineAssets) -> dg.JobDefinition:
    """Train now: a trigger at the live run's cursor. Its sensor asks for the training."""
    pipeline = assets.name

    @dg.op(name=f"{pipeline}__trigger_now", description="Make a trigger of the live run, on everything decided about so far.")
    def trigger_now(context: dg.OpExecutionContext, config: TriggerNowConfig, modyn: PlatformResource) -> None:
        from modyn_dagster.pipeline.decide.manual_trigger import trigger_now as make

        trigger = make(modyn.platform(), pipeline, config.note)
        context.log.info(f"trigger {trigger.partition_key}: {trigger.reason}; triggering__{pipeline} asks for its training")
        context.add_output_metadata({"trigger": trigger.partition_key, "trigger_key": trigger.key, "reason": trigger.reason})

    @dg.job(
        name=f"trigger_now__{pipeline}",
        description=f"Train {pipeline} now, on everything its live run has decided about; the policy goes on afterwards.",
        executor_def=dg.in_process_executor,
        owners=assets.pipeline.owners,
    )
    def job() -> None:
        trigger_now()

    return job


def notify_job(assets: PipelineAssets, spec: NotifySpec) -> dg.JobDefinition:
    """Tell the pipeline's channels what they have not been told. A process of its own: a hook may hang, or end it."""
    pipeline = assets.name

    @dg.op(name=f"{pipeline}__notify", description="Tell the pipeline's channels of every event they have not been told.")
    def notify(context: dg.OpExecutionContext, config: NotifyConfig, modyn: PlatformResource) -> None:
        from modyn_dagster.pipeline.operate.notification.delivery import deliver_events

        told = list(deliver_events(modyn.platform(), pipeline, parse_since(config.since, spec.channels)))
        for each in told:
            if each.error is None:
                context.log.info(f"told by {each.channel}: {each.event.text}")
            else:
                ending = "given up" if each.last else "it is tried again"
                context.log.error(f"the {each.channel} failed, {ending}: {each.error} (event: {each.event.text})")
        context.add_output_metadata({"told": sum(each.error is None for each in told), "events": len(told)})

    @dg.job(
        name=f"notify__{pipeline}",
        description=f"Tell the channels of {pipeline} of triggers, failed trainings and bad scores.",
        executor_def=dg.in_process_executor,
        # Dagster's run monitoring ends a hook that hangs.
        tags={"dagster/max_runtime": str(seconds_of(spec.max_run_time))},
        owners=assets.pipeline.owners,
    )
    def job() -> None:
        notify()

    return job


@dg.op(description="Remove what killed writers left in the model store, and documents no model refers to.")
def collect_garbage(context: dg.OpExecutionContext, modyn_model_store: ModelStoreResource) -> None:
    """Models stay, whatever else goes."""
    from modyn_dagster.errors import ModynError

    removed, models = 0, set[str]()
    failed = []
    for store in (stores := modyn_model_store.every_store()):
        try:
            gone = len(store.gc(progress=log_counts(context.log.info, f"{store.root}: models looked at")))
            stay = store.list()
        except (ModynError, OSError) as error:
            context.log.error(f"{store.root}: {error}")
            failed.append(f"{store.root}: {error}")
            continue
        context.log.info(f"{store.root}: removed {gone} files; {len(stay)} models stay")
        removed, models = removed + gone, models.union(stay)
    if failed:
        remedy = "Models are as they were; put right what is named, and launch the job again."
        raise dg.Failure(f"{len(failed)} of {len(stores)} model stores could not be cleaned up. {'; '.join(failed)}. {remedy}")
    context.add_output_metadata({"removed": removed, "models": len(models)})


@dg.job(description="Clean up the model store.", executor_def=dg.in_process_executor)
def model_store_gc() -> None:
    """Launch it by hand, or switch on the schedule."""
    collect_garbage()


#: Nightly, once somebody switches it on.
model_store_gc_schedule = dg.ScheduleDefinition(
    name="model_store_gc_nightly",
    job=model_store_gc,
    cron_schedule="0 4 * * *",
    description="Clean up the model store every night.",
)
