"""The job ``promotion__<pipeline>``: a person approves, rejects or rolls back in Dagster's launchpad."""

import re
from enum import StrEnum
from typing import TYPE_CHECKING, Final

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.promotion.aliases import aliases_moved
from modyn_dagster.assets.promotion.shown import report_champions
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform
    from modyn_dagster.pipeline.promotion.wishes import PlaceOfModel

_NUMBER: Final = re.compile(r"\d{1,6}")


class PromotionAction(StrEnum):
    """Action on the model of a trigger."""

    promote = "promote"
    reject = "reject"
    rollback = "rollback"


class PromotionConfig(dg.Config):
    """Decision of a person about a model of the open live run."""

    action: PromotionAction = Field(
        description="`promote` makes the model the champion, whatever its test says; with `approve: manual` it approves it. "
        "`reject` ends the test of a candidate. `rollback` makes an earlier champion the champion again. The model is loaded and "
        "verified before it becomes the champion."
    )
    trigger: str = Field(
        "",
        description="Model, by the partition key or the number of its trigger, or by its id. A rollback without it goes to the "
        "champion before.",
    )
    note: str = Field("by hand", description="Reason, for the history.")
    who: str = Field(description="Your name, for the history.")


def promotion_job(assets: PipelineAssets) -> dg.JobDefinition:
    """Promote, reject or roll back by hand; the change is shown at once."""
    pipeline = assets.name

    @dg.op(
        name=f"{pipeline}__promotion", description="Promote or reject a model of the live run, or roll back to an earlier one."
    )
    def decide(
        context: dg.OpExecutionContext, config: PromotionConfig, modyn: PlatformResource, modyn_mlflow: MlflowResource
    ) -> None:
        from modyn_dagster.pipeline.promotion.wishes import carry_out
        from modyn_dagster.reporting.promotion.tables import change_text

        platform = modyn.platform()
        place = _place(platform, pipeline, config.trigger)
        done = carry_out(platform, config.action.value, place, config.who, config.note)
        for event in done.events:
            context.log.info(change_text(event))
        if not done.events:
            context.log.info("nothing to do: that is so already")
        else:
            context.log.info(aliases_moved(platform, modyn_mlflow, done.run))
        report_champions(context.instance, assets, platform)
        context.add_output_metadata({"champion": done.run.champion_model or "", "changes": len(done.events)})

    @dg.job(
        name=f"promotion__{pipeline}",
        description=f"Approve or promote, reject, or roll back a model of {pipeline}: choose the action in the launchpad.",
        executor_def=dg.in_process_executor,
        owners=assets.pipeline.owners,
    )
    def job() -> None:
        decide()

    return job


def _place(platform: "Platform", pipeline: str, text: str) -> "PlaceOfModel":
    """Model of the open live run by a partition key, an id or a number; without one the champion before."""
    from modyn_dagster.pipeline.promotion.wishes import PlaceOfModel, model_of_run, run_to_promote

    with platform.transaction() as conn:
        run = run_to_promote(conn, platform, pipeline)
        if not text or _NUMBER.fullmatch(text):
            return PlaceOfModel(run, int(text) if text else None)
        return model_of_run(conn, run, text)
