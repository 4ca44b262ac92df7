"""Sets of holes for runs that treat deleted samples as if they had never arrived."""

from functools import partial

import numpy as np

from modyn_dagster.catalog.batches import list_batches
from modyn_dagster.catalog.datasets import DatasetRow
from modyn_dagster.catalog.deletions import deleted_keys
from modyn_dagster.catalog.labels.label_files import label_files
from modyn_dagster.catalog.removal.hole_sets import ensure_hole_set, largest_hole_set
from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.data.batch_index import open_index
from modyn_dagster.data.deletion.holes import Holes, late_classes, rests_of
from modyn_dagster.keys import MAX_ORDINAL, KeyArray, key_of
from modyn_dagster.pipeline.platform import Platform


def store_holes(platform: Platform, dataset: DatasetRow, keys: KeyArray, earlier: Holes | None = None) -> int:
    """Store a set of deleted samples (``uint64[n]``) and the facts of their batches without them; returns its id.

    ``earlier`` are holes among them whose facts are stored. An equal set is stored once. Nothing refers to it before a run is
    begun with it, so a set that a kill leaves is harmless.
    """
    keys = np.unique(keys)
    with platform.transaction() as conn:
        batches, files = list_batches(conn, dataset.id, "ingested"), label_files(conn, dataset.id)
    split, classes = platform.dataset(dataset.name).split, late_classes(platform.home, files, keys, earlier)
    rests = rests_of(batches, partial(open_index, platform.home), keys, split, dataset.class_names, earlier)
    facts = {ordinal: rest.to_json() for ordinal, rest in rests.items()}
    with platform.transaction() as conn:
        return ensure_hole_set(conn, dataset.id, keys, facts, classes)


def holes_of_all_deleted(platform: Platform, dataset: DatasetRow) -> int:
    """Store the set of all samples that are deleted now, which may be none; returns its id.

    Labels may be purged by now: what the largest set before it found stays known.
    """
    with platform.transaction() as conn:
        keys = deleted_keys(conn, dataset.id, 0, key_of(MAX_ORDINAL, 0))
        before = largest_hole_set(conn, dataset.id)
    return store_holes(platform, dataset, keys, None if before is None else Holes.of(before))


def holes_with(platform: Platform, dataset: DatasetRow, run: RunRow, keys: KeyArray) -> int:
    """Store the set of a run's holes and of further deleted samples (``uint64[n]``); returns its id."""
    with platform.transaction() as conn:
        earlier = platform.holes_of(conn, run)
    return store_holes(platform, dataset, keys if earlier is None else np.union1d(keys, earlier.keys), earlier)
