"""Samples that go while pipelines run: deleting them, and looking at what is left."""

from collections.abc import Iterator

import numpy as np

from modyn_dagster.catalog.results.training_sets import find_training_set
from modyn_dagster.catalog.triggers import TriggerRow, get_trigger
from modyn_dagster.ingestion.deletion.delete import delete_samples
from modyn_dagster.ingestion.deletion.purge import purge_samples
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.context import TriggerContext, context_of
from modyn_dagster.pipeline.decide.attempts import claim_context
from modyn_dagster.pipeline.operate.deletion.document import DeletionDocument, Selection
from modyn_dagster.pipeline.operate.deletion.execute import begin_request, execute_request
from modyn_dagster.pipeline.operate.deletion.plan import Wish, plan_request
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, amount

SPLIT = {"train": 0.7, "evaluate": 0.3}
#: Nearly a day's samples on the training side of most splits.
EVERY = 30


def delete(world: World, keys) -> None:
    platform = world.platform
    delete_samples(platform.engine, platform.home, platform.view(DATASET).row, np.asarray(keys, dtype=np.uint64))


def purge(world: World, keys) -> None:
    delete(world, keys)
    platform, view = world.platform, world.platform.view(DATASET)
    purge_samples(platform.engine, platform.home, view.spec, view.row, np.asarray(keys, dtype=np.uint64))


def keys_of(world: World, trigger: TriggerRow) -> KeyArray:
    with world.platform.transaction() as conn:
        row = find_training_set(conn, trigger.id)
    assert row is not None
    return open_training_set(context_of(world.platform, "by_amount", trigger.partition_key), row).keys()


def claimed(world: World, trigger: TriggerRow, pipeline: str = "by_amount") -> TriggerContext:
    trigger = context_of(world.platform, pipeline, trigger.partition_key).trigger
    return claim_context(world.platform, trigger, f"run {trigger.attempt}")


def reread(world: World, trigger: TriggerRow) -> TriggerRow:
    with world.platform.transaction() as conn:
        return get_trigger(conn, trigger.id)


def shown(_: DeletionDocument) -> Iterator[str]:
    yield "shown"


def wish(**fields) -> Wish:
    return Wish(Selection(by="keys", text="some"), "a person", **fields)


def plan(world: World, keys, **fields) -> DeletionDocument:
    return plan_request(world.platform, world.platform.view(DATASET).row, np.array(keys, np.uint64), wish(**fields))


def execute(world: World, keys, show=shown, **fields) -> DeletionDocument:
    dataset = world.platform.view(DATASET).row
    row = begin_request(world.platform, dataset, np.array(keys, np.uint64), plan(world, keys, **fields))
    return DeletionDocument.model_validate(execute_request(world.platform, row.id, show).document)


def chained(name: str = "by_amount", **fields):
    content = amount(name, every=EVERY, **fields)
    content["training"] |= {"use_previous_model": True}
    return content
