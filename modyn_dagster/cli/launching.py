"""Replays launched from the command line: the same asset, run and events as a backfill, in this process."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.catalog.urls import child_environment
from modyn_dagster.cli.services import CodeLocation
from modyn_dagster.errors import RunError
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from dagster import DagsterInstance, Definitions, ExecuteInProcessResult

_QUIET: Final[Mapping[str, Any]] = {"console": {"config": {"log_level": "CRITICAL"}}}


@dataclass(frozen=True, slots=True)
class ReplayOptions:
    """What identifies a replay beside its pipeline, whether to begin a new one, and which runs it takes from."""

    name: str = ""
    seed: int | None = None
    restart: bool = False
    manual_of: int | None = None
    costs_from: int | None = None


@contextmanager
def dagster_instance(settings: Settings) -> Iterator["DagsterInstance"]:
    """The Dagster instance that ``modyn-dagster ui`` serves: runs launched here show up there."""
    from dagster import DagsterInstance

    home = CodeLocation.find(settings.project, os.environ.get("DAGSTER_HOME")).dagster_home
    # Dagster reads its settings from the environment of the process and nowhere else.
    os.environ.update({**child_environment(settings), "DAGSTER_HOME": str(home)})
    with DagsterInstance.get() as instance:
        yield instance


def replay_range(
    defs: "Definitions",
    instance: "DagsterInstance",
    pipeline: str,
    batches: tuple[str, str],
    options: ReplayOptions,
) -> None:
    """Materialize ``<pipeline>/replay`` from the first to the last batch named, in one run.

    Raises ``RunError`` with the run's own reason when it fails; Dagster shows the same run with its events.
    """
    from dagster import AssetKey, materialize

    config = {name: value for name, value in asdict(options).items() if value is not None}
    result = materialize(
        [asset for asset in defs.assets or [] if not isinstance(asset, str)],  # type: ignore[misc]
        selection=[AssetKey([pipeline, "replay"])],
        instance=instance,
        resources=defs.resources,
        tags={"dagster/asset_partition_range_start": batches[0], "dagster/asset_partition_range_end": batches[1]},
        run_config={"ops": {f"{pipeline}__replay": {"config": config}}, "loggers": dict(_QUIET)},
        raise_on_error=False,
    )
    if not result.success:
        raise RunError(f"the replay of {pipeline} failed (Dagster run {result.run_id}): {_reason(result)}")


def _reason(result: "ExecuteInProcessResult") -> str:
    """What the op raised, which Dagster wraps; its own causes say less than it does."""
    for event in result.all_events:
        if event.is_step_failure and event.step_failure_data.error is not None:
            error = event.step_failure_data.error
            return str((error.cause or error).message).strip()
    return "see its log in Dagster"
