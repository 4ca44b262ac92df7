"""Plan of a deletion request: the document before anything has changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

import numpy as np

from modyn_dagster.catalog.batches import list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.results.models import model_uses
from modyn_dagster.errors import RunError
from modyn_dagster.ingestion.deletion.delete import plan_deletion
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.operate.deletion.affected import changed_files, changed_models
from modyn_dagster.pipeline.operate.deletion.batch_files import batch_files
from modyn_dagster.pipeline.operate.deletion.document import (
    DeletionDocument,
    Mode,
    Selection,
    Way,
    new_salt,
    samples_by_batch,
)
from modyn_dagster.pipeline.operate.deletion.since_arrival import concerned, decisions_that_depend
from modyn_dagster.pipeline.operate.deletion.ways import predicting_seconds
from modyn_dagster.pipeline.operate.sample_lineage import usages_of
from modyn_dagster.pipeline.platform import Platform


@dataclass(frozen=True, slots=True)
class Wish:
    """Wish of a person that samples go.

    Attributes:
        selection: how the samples were chosen.
        actor: the person who asks.
        reason: recorded with the deletion.
        purge: overwrite bytes, labels and attributes too.
        mode: whether decisions stay as they were taken, or runs are decided anew with the samples as holes.
        ways: chosen by the person, by pipeline.
    """

    selection: Selection
    actor: str
    reason: str | None = None
    purge: bool = False
    mode: Mode = "kept"
    ways: Mapping[str, Way] = field(default_factory=dict)


def plan_request(platform: Platform, dataset: DatasetRow, keys: KeyArray, wish: Wish) -> DeletionDocument:
    """Find what samples (``uint64[n]``, deleted or not) went into, and choose a way out for each run; nothing is changed.

    Raises:
        UnknownKey: a key that no sample has.
        RunError: there is no sample to delete.
        ConfigError: a way that a run does not have.
    """
    keys = np.unique(keys)
    if len(keys) == 0:
        raise RunError(f"dataset {dataset.name}: the selection holds no sample")
    with platform.transaction() as conn:
        # Names the first unknown key.
        plan_deletion(conn, platform.home, dataset, keys)
        names = {batch.ordinal: batch.partition_key for batch in list_batches(conn, dataset.id)}
    uses = usages_of(platform, dataset.id, keys)
    salt = new_salt()
    with platform.transaction() as conn:
        models = model_uses(conn)
        uses, actions = concerned(conn, platform, dataset, keys, uses, models, wish.mode, wish.ways)
        changed = changed_models(conn, uses)
        going = {model.trigger for model in changed}
        return DeletionDocument(
            dataset=dataset.name,
            requested_at=datetime.now(UTC),
            actor=wish.actor,
            reason=wish.reason,
            selection=wish.selection,
            mode=wish.mode,
            purge=wish.purge,
            salt=salt,
            batches=samples_by_batch(keys, names),
            actions=actions,
            models=changed,
            files=[*batch_files(conn, platform, dataset, keys), *changed_files(conn, platform, dataset, keys, uses)],
            decisions_depend=decisions_that_depend(conn, platform, dataset, keys, actions),
            predicting=predicting_seconds(conn, platform, dataset.name, keys, going),
        )
