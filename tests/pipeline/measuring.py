"""Pipelines whose policies want something measured, and what tests of them look at."""

import numpy as np
import sqlalchemy as sa

from modyn_dagster.catalog.decisions import measurement
from modyn_dagster.ingestion.deletion.delete import delete_samples
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, triggered


def drift(name: str = "by_drift", of: str = "embeddings", **fields):
    trigger = {
        "kind": "drift",
        "every": 15,
        "windows": {"by": "amount", "reference": 60, "current": 30},
        "metrics": {"mmd": {"metric": "mmd"}},
        "features": {"of": of},
        "decision": {"rule": "threshold", "value": 0.1},
    }
    return triggered(name, trigger | fields)


def performance(name: str = "by_performance", **fields):
    trigger = {"kind": "performance", "every": 20, "decision": {"rule": "threshold", "value": 0.7}}
    return triggered(name, trigger | fields)


def deliver_with_shift(world: World, days, **options) -> None:
    """Points lie elsewhere from the fourth day on."""
    for day in days:
        world.deliver([day], shift=3.0 if day >= 4 else 0.0, **options)


def measured_points(world: World, run) -> list[int]:
    with world.platform.transaction() as conn:
        return list(
            conn.scalars(sa.select(measurement.c.point).where(measurement.c.run_id == run.id).order_by(measurement.c.point))
        )


def kept(world: World) -> list[tuple]:
    """Every measurement row with the moment it was written."""
    with world.platform.transaction() as conn:
        return [tuple(row) for row in conn.execute(sa.select(measurement).order_by(measurement.c.id))]


def delete(world: World, keys) -> None:
    platform = world.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.asarray(list(keys), dtype=np.uint64))
