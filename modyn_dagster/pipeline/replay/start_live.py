"""Start of a live run from a replay: it takes over the replay's history and state, and goes on behind its last batch.

One transaction makes the run with copies of all rows of the replay, so that every reader of a run finds its whole history. Files
get a second name in the run's folders before it is committed; removing either leaves the other. Models are named by their
content, and a model stays in its store as long as a row names it. So each of the two runs may be removed, or lose files to
retention, without the other. A kill before the commit leaves names of files that no row has.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.database.mapping import as_timestamp
from modyn_dagster.catalog.deletions import block_deletions
from modyn_dagster.catalog.registration.datasets import ensure_dataset
from modyn_dagster.catalog.results.copies import copy_history, history_files, path_in_run
from modyn_dagster.catalog.results.models import block_model_removals
from modyn_dagster.catalog.runs import RunRow, create_run, ensure_pipeline, get_run, live_run
from modyn_dagster.catalog.triggers import TriggerRow
from modyn_dagster.errors import RunError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.pipeline.platform import Platform, optimizers_path
from modyn_dagster.pipeline.replay.run import require_idle
from modyn_dagster.pipeline.replay.start_refusals import (
    require_history,
    require_holes_of,
    require_no_live_run,
    require_replay_of,
)

#: Option of a live run: the id of the replay whose history it took over.
FROM_REPLAY: Final = "from_replay"


@dataclass(frozen=True, slots=True)
class Started:
    """A live run that took over the history of a replay.

    Attributes:
        run: the live run.
        replay: the replay.
        anew: False where an earlier call had started it.
    """

    run: RunRow
    replay: RunRow
    anew: bool


def start_live(platform: Platform, pipeline: str, run_id: int) -> Started:
    """Begin the live run of a pipeline with the history, the state and the cursor of a finished replay.

    Seed, threads, holes and begin of the stream are the replay's. Models are live from now on. While the run is open, another
    call with the same replay changes nothing.

    Raises:
        RunError: the run is no finished replay of the pipeline's spec, something is gone that its successor needs, a process
            works on it, or the pipeline has another open live run.
        UnknownName: there is no such run or pipeline.
    """
    spec = platform.pipeline(pipeline)
    with platform.transaction() as conn:
        dataset = ensure_dataset(conn, platform.dataset(spec.dataset))
        # The pipeline's row is locked: of two starts, or a start and a tick, one begins the live run and the other finds it.
        pipeline_id = ensure_pipeline(conn, spec.name, dataset.id)
        block_deletions(conn, dataset.id)
        replay = get_run(conn, run_id, lock=True)
        current = live_run(conn, spec.name)
        if current is not None and current.is_open and current.options.get(FROM_REPLAY) == replay.id:
            return Started(current, replay, anew=False)
        require_replay_of(platform, spec, replay)
        require_no_live_run(current)
        require_idle(conn, replay)
        require_holes_of(conn, platform, replay, current)
        block_model_removals(conn)
        triggers = require_history(conn, platform, replay)
        run = create_run(
            conn,
            pipeline_id=pipeline_id,
            spec_id=replay.spec_id,
            mode="live",
            seed=replay.seed,
            threads=replay.threads,
            origin=replay.origin,
            cursor=replay.cursor,
            last_ordinal=replay.last_ordinal,
            policy_state=replay.policy_state,
            selector_state=replay.selector_state,
            previous_model=replay.previous_model,
            champion_model=replay.champion_model,
            hole_set_id=replay.hole_set_id,
            options={FROM_REPLAY: replay.id},
        )
        _link_files(conn, platform, replay, run, triggers)
        copy_history(conn, replay.id, run.id, scored_until=_time_reached(conn, platform, replay))
    return Started(run, replay, anew=True)


def _time_reached(conn: sa.Connection, platform: Platform, replay: RunRow) -> datetime | None:
    """Stream time up to which intervals are closed; a finished replay has scored open ones, which a live run does not."""
    reached = platform.read_view_of(conn, replay, until=replay.last_ordinal).time_reached
    return None if reached is None else as_timestamp(reached)


def _link_files(conn: sa.Connection, platform: Platform, replay: RunRow, run: RunRow, triggers: Sequence[TriggerRow]) -> None:
    """Give the files of a replay second names as files of another run, durably."""
    files, home = files_at(platform.home), platform.home
    kept = [(home / optimizers_path(replay.id, each.ordinal), optimizers_path(run.id, each.ordinal)) for each in triggers]
    present = files.sizes([path for path, _ in kept])
    pairs = [(home / path, path_in_run(path, run.id)) for path in history_files(conn, replay.id)]
    pairs += [(path, target) for path, target in kept if path in present]
    for path, target in pairs:
        try:
            # A number of a run that was rolled back, or of a catalog before a backup, may have left names.
            files.link(path, home / target, replace=True)
        except FileNotFoundError as error:
            relative = path.relative_to(home)
            raise RunError(f"{replay.title}: the file {relative} is missing; `modyn-dagster repair` makes it again") from error
