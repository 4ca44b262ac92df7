"""When data have arrived, models that still need it are judged: one run for all of them, asked for again if it fails."""

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final, Self

import dagster as dg

from modyn_dagster.assets.dagster_runs import EVALUATION_TAG, going_runs
from modyn_dagster.assets.specs import PipelineAssets

if TYPE_CHECKING:
    from collections.abc import Sequence

    from modyn_dagster.catalog.runs import RunRow
    from modyn_dagster.catalog.triggers import TriggerRow
    from modyn_dagster.pipeline.platform import Platform

#: Of a tick, which may have decided for some seconds already.
_LOOK_SECONDS: Final = 3.0


@dataclass(frozen=True, slots=True)
class Mark:
    """What the sensor remembers between ticks, as its cursor.

    Attributes:
        settled: the run, as far as it and deletions had come, when nothing was left to judge; saves looking again.
        asked: what was asked for last, and
        attempt: how often.
        looking: what ``settled`` is going to be, while the look at all models takes several ticks, and
        looked: how many of them need nothing.
    """

    settled: str = ""
    asked: str = ""
    attempt: int = 0
    looking: str = ""
    looked: int = 0

    @classmethod
    def parse(cls, cursor: str | None) -> Self:
        """From the cursor's text; an absent one remembers nothing."""
        return cls(**json.loads(cursor)) if cursor else cls()

    def text(self) -> str:
        """For the cursor, where people see it: what is empty is left out."""
        return json.dumps({name: value for name, value in asdict(self).items() if value})


def evaluation_request(
    instance: dg.DagsterInstance, platform: "Platform", assets: PipelineAssets, run: "RunRow", mark: Mark
) -> tuple[dg.RunRequest | None, Mark, str]:
    """The run to ask for, what to remember, and a line for the tick's log.

    What was asked for and failed is asked for again, as often as the pipeline's ``max_attempts``; then only when there is
    something else to judge.
    """
    deletions = _deletions(platform, run)
    here = f"{run.id}:{run.epoch}:{deletions}"
    if mark.settled == here:
        return None, mark, "nothing new to judge"
    if going_runs(instance, {EVALUATION_TAG: assets.name}):
        return None, mark, "an evaluation is under way"
    from modyn_dagster.pipeline.due import look_for_due

    begin = mark.looked if mark.looking == here else 0
    found = look_for_due(platform, run, begin, _LOOK_SECONDS)
    due = found.due
    if not due and not found.complete:
        return None, replace(mark, looking=here, looked=found.looked), f"{found.looked} models are judged, the next tick looks on"
    if not due:
        return None, Mark(settled=here), "every model is judged"
    wanted = _name(run, deletions, due)
    attempt = mark.attempt + 1 if mark.asked == wanted else 1
    if attempt > assets.pipeline.max_attempts:
        text = f"judging {len(due)} models failed {mark.attempt} times, see the runs of evaluate__{assets.name}"
        return None, mark, f"{text}; new data or a run launched by hand tries again"
    request = _request(assets, due, f"{assets.name}:evaluation:{wanted}:{attempt}")
    mark = Mark(asked=wanted, attempt=attempt, looking=here, looked=begin)
    return request, mark, f"{len(due)} models to judge, attempt {attempt}"


def _deletions(platform: "Platform", run: "RunRow") -> int:
    from modyn_dagster.catalog.deletions import deletion_stamp

    with platform.transaction() as conn:
        return deletion_stamp(conn, run.dataset_id)


def _name(run: "RunRow", deletions: int, due: "Sequence[TriggerRow]") -> str:
    """Short name of what is due, another one whenever that changes."""
    keys = ",".join(trigger.partition_key for trigger in due)
    return f"{run.id}:{run.last_ordinal}:{deletions}:{hashlib.blake2b(keys.encode(), digest_size=8).hexdigest()}"


def _request(assets: PipelineAssets, due: "Sequence[TriggerRow]", run_key: str) -> dg.RunRequest:
    keys = [trigger.partition_key for trigger in due]
    return dg.RunRequest(
        run_key=run_key,
        job_name=f"evaluate__{assets.name}",
        # Dagster wants one partition of a run on partitioned assets; the configuration names them all.
        partition_key=keys[-1],
        run_config={"ops": {assets.op("evaluation"): {"config": {"triggers": keys}}}},
        tags={EVALUATION_TAG: assets.name},
    )
