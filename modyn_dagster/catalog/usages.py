"""Which training sets may hold some keys, and what became of them."""

from dataclasses import dataclass

import sqlalchemy as sa

from modyn_dagster.catalog.rows import as_row
from modyn_dagster.catalog.tables import model, pipeline, pipeline_run, training_set, trigger
from modyn_dagster.catalog.triggers import partition_key


@dataclass(frozen=True, slots=True)
class TrainingSetUse:
    """A training set, its trigger, and the model that was trained on it, if it was.

    Attributes:
        after, until: the window ``(after, until]`` it was selected from.
        path, checksum: of its file, relative to the home folder.
        model_hash: None where the trigger is not trained.
        previous_hash: the model that this one started from.
    """

    pipeline: str
    mode: str
    run_id: int
    ordinal: int
    state: str
    after: int
    until: int
    n_samples: int
    path: str
    checksum: str
    model_hash: str | None
    previous_hash: str | None

    @property
    def partition_key(self) -> str:
        """Of the trigger assets in Dagster."""
        return partition_key(self.run_id, self.ordinal)


def training_sets_of(conn: sa.Connection, dataset_id: int) -> list[TrainingSetUse]:
    """Every training set that was selected from a dataset, in the order of their triggers."""
    statement = (
        sa.select(
            training_set,
            pipeline.c.name.label("pipeline"),
            pipeline_run.c.mode,
            trigger.c.run_id,
            trigger.c.ordinal,
            trigger.c.state,
            model.c.hash.label("model_hash"),
            model.c.previous_hash,
        )
        .join(trigger, training_set.c.trigger_id == trigger.c.id)
        .join(pipeline_run, trigger.c.run_id == pipeline_run.c.id)
        .join(pipeline, pipeline_run.c.pipeline_id == pipeline.c.id)
        .outerjoin(model, model.c.trigger_id == trigger.c.id)
        .where(pipeline.c.dataset_id == dataset_id)
        .order_by(trigger.c.id)
    )
    return [as_row(TrainingSetUse, row) for row in conn.execute(statement)]
