"""F19: the cost of labels that arrived in files of their own, against labels in the indexes; all samples are labelled."""

import hashlib
import io
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.data import COLUMNS, Data, Keys
from benchmarks.measure import Contender, interleave, timed
from benchmarks.report import Figure
from benchmarks.rows import BATCH
from benchmarks.setting import Setting
from fastpath import SampleStore
from fastpath.format.index import BatchIndex
from fastpath.format.labels.known_labels import KnownLabels, LabelPart
from fastpath.format.labels.label_file import LabelRows, write_label_rows
from fastpath.format.mapped_files import CHECKSUM_BYTES

#: Later passes of one repetition: a single one takes milliseconds.
_LATER: Final = 4


def figures(setting: Setting) -> Iterator[Figure]:
    """F19 and F19.first: time of passes over rows with their labels, late / with the samples, shuffled, with two threads.

    A first pass opens a new store over all files, and merges the label files as it opens batches. A later one finds them merged.
    ``.processor`` counts the seconds of the processor, of both threads, which other programs disturb less.
    """
    data = setting.data
    late = label_files(setting.work / "labels", data)
    shuffled = np.random.default_rng(4).permutation(data.keys)
    n_later = _LATER * len(shuffled)
    for suffix, clock in (("", time.perf_counter), (".processor", time.process_time)):
        with data.open(threads=2) as plain, data.open(threads=2, labels=late) as overlaid:
            contenders: dict[str, Contender] = {
                "with samples, first": timed(len(shuffled), partial(_first, data, shuffled, None), clock),
                "late, first": timed(len(shuffled), partial(_first, data, shuffled, late), clock),
                "with samples, later": timed(n_later, partial(_later, plain, shuffled), clock),
                "late, later": timed(n_later, partial(_later, overlaid, shuffled), clock),
            }
            rounds = interleave(contenders, setting.machine)
        for figure, which in (("F19.first", "first"), ("F19", "later")):
            what = f"{'processor ' if suffix else ''}time of a {which} shuffled pass, late labels / with the samples"
            spread = rounds.ratio(f"with samples, {which}", f"late, {which}")
            yield Figure(figure + suffix, what, spread, "x", 1.1, at_most=True)


def label_files(folder: Path, data: Data) -> KnownLabels:
    """Write the labels of the indexes to label files, one per batch, and open them."""
    folder.mkdir(parents=True, exist_ok=True)
    parts = {}
    for ordinal in range(1, len(data.paths) + 1):
        labels = BatchIndex.open(data.home / f"batches/criteo/{ordinal}.arrow").labels
        if labels is None:
            raise ValueError(f"batch {ordinal} has no labels")
        n = len(labels)
        keys = (np.uint64(ordinal) << np.uint64(32)) + np.arange(n, dtype=np.uint64)
        rows = LabelRows(keys, np.array(labels), np.zeros(n, "datetime64[us]"), np.arange(n, dtype=np.uint64))
        out = io.BytesIO()
        write_label_rows(out, rows)
        path = folder / f"{ordinal}.arrow"
        path.write_bytes(out.getvalue())
        checksum = hashlib.blake2b(out.getvalue(), digest_size=CHECKSUM_BYTES).hexdigest()
        parts[ordinal] = [LabelPart(path, checksum, 0, n)]
    return KnownLabels("labels", parts)


def _first(data: Data, keys: Keys, labels: KnownLabels | None) -> None:
    with data.open(threads=2, labels=labels) as store:
        _pass(store, keys)


def _later(store: SampleStore, keys: Keys) -> None:
    for _ in range(_LATER):
        _pass(store, keys)


def _pass(store: SampleStore, keys: Keys) -> None:
    out, labels = COLUMNS.allocate(BATCH), np.empty(BATCH, np.int64)
    for start in range(0, len(keys) - BATCH + 1, BATCH):
        store.columns_into(keys[start : start + BATCH], COLUMNS, out)
        store.labels_into(keys[start : start + BATCH], labels)
