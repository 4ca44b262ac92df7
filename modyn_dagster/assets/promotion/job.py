"""The job ``promotion__<pipeline>``: a person approves, rejects or rolls back in Dagster's launchpad."""

import re
from datetime import datetime
from enum import StrEnum
from typing import Final, TypedDict

import dagster as dg
from pydantic import Field

from modyn_dagster.assets.promotion.by_hand import chosen_place, decide_by_hand
from modyn_dagster.assets.promotion.shown import report_champions
from modyn_dagster.assets.specs import PipelineAssets
from modyn_dagster.errors import ConfigError
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.resources.platform import PlatformResource
from modyn_dagster.values.moments import parse_moment

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
    at: str = Field(
        "",
        description="The same by time: the champion at a moment of the clock, in ISO 8601, in UTC unless it names a time zone.",
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
        platform = modyn.platform()
        with platform.transaction() as conn:
            place = chosen_place(conn, platform, pipeline, **_named(config))
        done = decide_by_hand(platform, modyn_mlflow, config.action.value, place, config.who, config.note)
        for sentence in done.sentences:
            context.log.info(sentence)
        report_champions(context.instance, assets, platform)
        context.add_output_metadata({"champion": done.run.champion_model or "", "changes": done.n_changes})

    @dg.job(
        name=f"promotion__{pipeline}",
        description=f"Approve or promote, reject, or roll back a model of {pipeline}: choose the action in the launchpad.",
        executor_def=dg.in_process_executor,
        owners=assets.pipeline.owners,
    )
    def job() -> None:
        decide()

    return job


class _Named(TypedDict, total=False):
    """Model of a decision, by its trigger's number, by its id or partition key, or by a time."""

    trigger: int
    model: str
    moment: datetime


def _named(config: PromotionConfig) -> _Named:
    named = _Named()
    if _NUMBER.fullmatch(config.trigger):
        named["trigger"] = int(config.trigger)
    elif config.trigger:
        named["model"] = config.trigger
    if config.at:
        try:
            named["moment"] = parse_moment(config.at)
        except ValueError:
            rule = "must be a time like 2026-03-31, 2026-03-31T14:05 or 2026-03-31T14:05:09.25+02:00"
            raise ConfigError("promotion", "at", config.at, rule) from None
    return named
