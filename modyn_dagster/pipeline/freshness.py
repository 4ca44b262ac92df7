"""Whether data still arrive."""

from datetime import datetime, timedelta

import sqlalchemy as sa

from modyn_dagster.catalog.batches import newest_arrival
from modyn_dagster.catalog.datasets import ensure_dataset
from modyn_dagster.pipeline.checks import CheckResult
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.spec.base import seconds_of

FRESH = "fresh"


def freshness(platform: Platform, dataset: str, now: datetime | None = None) -> CheckResult:
    """Hold the arrival of the newest ingested batch against ``freshness`` of a dataset that has it.

    Arrival is when the batch was registered, by the wall clock (of the database, unless ``now`` is given); a batch that
    failed or is still open has brought no data. Before the first batch the dataset's own age counts.
    """
    spec = platform.project.datasets[dataset]
    if spec.freshness is None:
        return CheckResult(FRESH, True, False, f"{dataset} says nothing about freshness")
    with platform.transaction() as conn:
        newest, arrived = newest_arrival(conn, ensure_dataset(conn, spec).id)
        moment = now if now is not None else conn.execute(sa.select(sa.func.now())).scalar_one()
    age = max(moment - arrived, timedelta())
    maximum = timedelta(seconds=seconds_of(spec.freshness.maximum))
    since = f"since batch {newest} arrived" if newest is not None else "since the dataset was made, for no batch ever arrived"
    text = f"{shown(age)} {since}, at most {spec.freshness.maximum} are fine"
    passed = age <= maximum
    seconds = {"age_seconds": age.total_seconds(), "maximum_seconds": maximum.total_seconds()}
    values = {**seconds, "newest_batch": newest or "none", "arrived": arrived.isoformat()}
    return CheckResult(FRESH, passed, False, text if passed else f"no data for {shown(age)}: {text}", values)


def shown(age: timedelta) -> str:
    """A length of time in its two largest units.

    >>> shown(timedelta(days=2, hours=3, minutes=4)), shown(timedelta(seconds=59.9))
    ('2 d 3 h', '59 s')
    """
    seconds = int(age.total_seconds())
    parts = [(seconds // 86_400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    first = next((i for i, (number, _) in enumerate(parts) if number), len(parts) - 1)
    return " ".join(f"{number} {unit}" for number, unit in parts[first : first + 2] if number) or "0 s"
