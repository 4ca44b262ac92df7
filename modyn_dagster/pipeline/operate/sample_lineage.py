"""Lineage of samples: the training sets that hold them, and the models derived from those."""

from dataclasses import dataclass

import numpy as np

from modyn_dagster.catalog.results.training_sets import TrainingSetUse, training_sets_of
from modyn_dagster.errors import StorageError
from modyn_dagster.files.mounting import files_at
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection import TrainingSet


@dataclass(frozen=True, slots=True)
class SampleUse:
    """Use of some keys by a training set.

    Attributes:
        used_by: the training set.
        n_keys: number of the keys in it; None where its file is removed or cannot be read.
        why_unknown: reason of an unknown number, otherwise empty.
        inherited: whether its model started from one that has, or may have, trained on the keys.
    """

    used_by: TrainingSetUse
    n_keys: int | None
    why_unknown: str
    inherited: bool


def usages_of(platform: Platform, dataset_id: int, keys: KeyArray) -> list[SampleUse]:
    """List the training sets that may hold some of these keys (``uint64[n]``), and those of models that started from theirs.

    Only training sets whose window reaches one of the keys are opened, one partition after the other.
    """
    keys = np.unique(keys)
    with platform.transaction() as conn:
        rows = training_sets_of(conn, dataset_id)
    uses, models = [], set()
    for row in rows:
        n_keys, why_unknown = _count(platform, row, keys)
        inherited = row.previous_hash in models
        if n_keys == 0 and not inherited:
            continue
        uses.append(SampleUse(row, n_keys, why_unknown, inherited))
        if row.model_hash is not None:
            models.add(row.model_hash)
    return uses


def _count(platform: Platform, row: TrainingSetUse, keys: KeyArray) -> tuple[int | None, str]:
    first, stop = np.searchsorted(keys, np.array([row.after + 1, row.until + 1], dtype=np.uint64))
    inside = keys[first:stop]
    if len(inside) == 0 or row.n_samples == 0:
        return 0, ""
    path = platform.home / row.path
    if files_at(path).size(path) is None:
        return None, "file removed by retention"
    try:
        partitions = TrainingSet.open(path, row.checksum).partitions()
        return len(np.unique(np.concatenate([np.intersect1d(part.keys, inside) for part in partitions]))), ""
    except StorageError as error:
        return None, str(error)
