"""Times in which the models of live runs were the live ones of their pipelines."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from modyn_dagster.catalog.results.models import ModelUse


class LiveTime(NamedTuple):
    """Time in which a model was live; ``until`` is None where it still is."""

    since: datetime
    until: datetime | None


def live_times(uses: Sequence[ModelUse]) -> Mapping[str, LiveTime]:
    """Live time by the partition key of the trigger. A model is live until its pipeline has a newer one in a live run.

    Models of replays were never live, and of those that a live run took over from a replay the newest alone. ``uses`` are
    those of all runs of the pipelines in question.
    """
    by_pipeline: dict[str, list[ModelUse]] = defaultdict(list)
    for use in uses:
        if use.mode == "live":
            by_pipeline[use.pipeline].append(use)
    times: dict[str, LiveTime] = {}
    for models in by_pipeline.values():
        ordered = sorted(models, key=lambda use: (use.created_at, use.trigger_id))
        ends = [*(use.created_at for use in ordered[1:]), None]
        spans = ((use, LiveTime(use.created_at, end)) for use, end in zip(ordered, ends, strict=True))
        times |= {use.partition_key: span for use, span in spans if span.since != span.until}
    return times
