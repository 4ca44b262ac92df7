"""Times in which the models of live runs were the live ones of their pipelines."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelUse, model_uses
from modyn_dagster.catalog.results.promotions import PromotionRow, runs_with_champions, went_live


class LiveTime(NamedTuple):
    """Time in which a model was live, from the first such moment to the last; ``until`` is None where it still is."""

    since: datetime
    until: datetime | None


def read_live_times(conn: sa.Connection) -> Mapping[str, LiveTime]:
    """Read the live times of the models of all pipelines, as by ``live_times``."""
    return live_times(model_uses(conn), runs_with_champions(conn), went_live(conn))


def live_times(
    uses: Sequence[ModelUse], with_champions: Collection[int] = (), crowned: Sequence[PromotionRow] = ()
) -> Mapping[str, LiveTime]:
    """Live time by the partition key of the trigger.

    A model is live until its pipeline has a newer one in a live run; in a run whose champion is live, from its promotion to the
    next one. Models of replays were never live, and of those that a live run took over from a replay the last one alone.

    Args:
        uses: models of all runs of the pipelines in question.
        with_champions: ids of the runs whose live model is their champion.
        crowned: promotions to champion of these, in order.
    """
    live = {use.trigger_id: use for use in uses if use.mode == "live"}
    moments: dict[str, list[tuple[datetime, int, str]]] = defaultdict(list)
    for use in live.values():
        if use.run_id not in with_champions:
            moments[use.pipeline].append((use.created_at, use.trigger_id, use.partition_key))
    for event in crowned:
        if event.run_id in with_champions and event.trigger_id in live:
            moments[live[event.trigger_id].pipeline].append((event.created_at, event.id, event.partition_key))
    times: dict[str, LiveTime] = {}
    for ordered in map(sorted, moments.values()):
        ends = [*(moment for moment, _, _ in ordered[1:]), None]
        for (since, _, key), until in zip(ordered, ends, strict=True):
            if since != until:
                times[key] = LiveTime(times[key].since if key in times else since, until)
    return times
