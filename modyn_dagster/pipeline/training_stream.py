"""Training stream of a dataset, as triggering policies ask it."""

import numpy as np

from modyn_dagster.catalog.batches import BatchRow
from modyn_dagster.catalog.moments import as_datetime64
from modyn_dagster.ingestion.split import TRAIN
from modyn_dagster.pipeline.view import DatasetView, Positions
from modyn_dagster.triggering.stream import Stream, StreamBatch, Times


def training_stream(view: DatasetView, origin: int) -> Stream:
    """The train samples of a view after a key; deleted ones still count."""
    return Stream([_stream_batch(view, batch) for batch in view.batches], origin)


def _stream_batch(view: DatasetView, batch: BatchRow) -> StreamBatch:
    def load() -> tuple[Positions, Times]:
        positions = view.positions_on(batch, TRAIN)
        return positions, view.times(batch)[positions]

    time_max = np.datetime64(0, "us") if batch.train_time_max is None else as_datetime64(batch.train_time_max)
    return StreamBatch(batch.ordinal, int(batch.n_train or 0), time_max, load)
