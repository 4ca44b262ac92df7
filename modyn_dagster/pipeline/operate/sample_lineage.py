"""Who has used some samples: training sets that hold them, and the models that come from those."""

from dataclasses import dataclass

import numpy as np

from modyn_dagster.catalog.results.training_sets import TrainingSetUse, training_sets_of
from modyn_dagster.errors import StorageError
from modyn_dagster.keys import KeyArray
from modyn_dagster.pipeline.platform import Platform
from modyn_dagster.selection import TrainingSet


@dataclass(frozen=True, slots=True)
class Usage:
    """What a training set has to do with some keys.

    Attributes:
        n_keys: how many of them it holds; None where that is unknown because its file is gone or cannot be read.
        why_unknown: the reason then, empty otherwise.
        inherited: its model started from one that is or may be concerned.
    """

    used_by: TrainingSetUse
    n_keys: int | None
    why_unknown: str
    inherited: bool


def usages_of(platform: Platform, dataset_id: int, keys: KeyArray) -> list[Usage]:
    """Training sets that hold, or may hold, some of these keys (``uint64[n]``), and what was trained further from their models.

    Only training sets whose window reaches one of the keys are opened, one partition after the other.
    """
    wanted = np.unique(keys)
    with platform.transaction() as conn:
        rows = training_sets_of(conn, dataset_id)
    found, concerned = [], set()
    for row in rows:
        n_keys, why_unknown = _count(platform, row, wanted)
        inherited = row.previous_hash in concerned
        if n_keys == 0 and not inherited:
            continue
        found.append(Usage(row, n_keys, why_unknown, inherited))
        if row.model_hash is not None:
            concerned.add(row.model_hash)
    return found


def _count(platform: Platform, row: TrainingSetUse, keys: KeyArray) -> tuple[int | None, str]:
    first, stop = np.searchsorted(keys, np.array([row.after + 1, row.until + 1], dtype=np.uint64))
    inside = keys[first:stop]
    if len(inside) == 0 or row.n_samples == 0:
        return 0, ""
    path = platform.home / row.path
    if not path.is_file():
        return None, "file removed by retention"
    try:
        return _hits(TrainingSet.open(path, row.checksum), inside), ""
    except StorageError as error:
        return None, str(error)


def _hits(training_set: TrainingSet, keys: KeyArray) -> int:
    """How many of the keys (ascending, at least one) a training set holds, however often."""
    hit = np.zeros(len(keys), dtype=bool)
    for partition in training_set.partitions():
        at = np.searchsorted(keys, partition.keys)
        at[at == len(keys)] = 0
        hit[at[keys[at] == partition.keys]] = True
    return int(hit.sum())
