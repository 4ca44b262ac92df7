"""Throughput of shuffled reads by key, and its effect on training: figures F0 to F13 and F17 to F19.

``python benchmarks/throughput.py [--quick] [--json FILE] [--only F1,F5] [--work DIR] [--data FOLDER]``

Rows have 160 bytes, a batch 65,536 of them; what is delivered is ``num float32[B, 13]``, ``cat int64[B, 26]``, ``label
float32[B]``, and every contender's batch is compared with ours bit for bit before anything is timed. A ratio is taken
inside each round of interleaved repetitions; reported are the median of at least five, the smallest and the largest.
Torch has one thread but where models are trained. The page cache is warm but where a figure says cold: then files are
unmapped, written back and dropped, and it is checked that they are gone.

F0   SampleStore.read of shuffled keys into given buffers, and BatchStream, against a plain C loop over the mapped files with the
     same keys and threads; beside BatchStream the loop permutes and gathers keys and weights as well. F0.4GiB: on gigabytes.
F1   BatchStream with 2 threads over a random half of all keys, whole set shuffled, against a vectorised sequential scan
     of all files (``open().read()`` each); rows/s. F1.one_thread, F1.store: the same with 1 thread, and without the
     stream.
F2   the same against Modyn's local baseline: a generator of samples and the default collate.
F3   the store's kernel on shuffled keys against the same keys in order; F3.4GiB on gigabytes, F3.4GiB_loop the same ratio of
     the plain C loop. F3.contiguous: against rows without gaps.
F4   F1 against ``np.take`` on one memory map of all rows, converted the same way.
F5   CPU time of a batch of one row through the torch loader: what Python costs. F5.difference: CPU time that a batch of
     65,536 costs beyond the kernels it calls (order, keys, gather).
F6   all keys shuffled, against each library of requirements.txt in its recommended way of random access; what is not
     installed is skipped.
F7   the torch loader, training nothing, against the store's kernel on shuffled keys, 2 threads each.
F8   DLRM trained on a random choice, shuffled, through the torch loader, against the same loop on the sequential scan:
     samples/s, and the time spent waiting for data. F8b: ResNet-18 on packed JPEG files, against reading the files in
     order and the same decoder.
F9   JPEG files packed at ingestion, read by shuffled keys, against ``open().read()`` of the files in order; decoding
     against Pillow.
F10  cold rows in key order, by share of rows wanted, against the best of five other ways.
F11  two threads against one, through the ring and bare; rows/s at 20 M rows against 1 M; anonymous memory of an epoch
     of 20 M rows. F11.kernel_loop, F11.rows_loop: the same ratios of the plain C loop.
F12  from a saved state to the batch in the middle of a shuffled epoch of 20 M rows, its training set opened anew.
F13  a training set of 100 M written with checksum and fsync; opened, and its first batch taken.
F17  strict reads, which compare every byte with the digests of its ingestion, against default ones: the first pass of a
     store (F17.strict_first) and later passes (F17.strict).
F18  shards read through a warm node cache (``MODYN_FILES``) against the same in a local home: an open store (F18), and one that
     is opened for each pass (F18.first).
F19  labels that arrived in files of their own, against labels in the indexes: later passes (F19) and the first of a store
     (F19.first).

F6, F9, F11 and F13 themselves, which have a goal for each part, are the least of these parts over its goal: 1 reaches all.
"""

import argparse
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Final

if __name__ == "__main__":
    # The repository's root instead of this folder: its modules are found, and hide nobody else's.
    sys.path[0] = str(Path(__file__).resolve().parents[1])

import torch

from benchmarks.figures import (
    cold,
    late_labels,
    libraries,
    node_cache,
    pictures,
    reading,
    scaling,
    strict,
    training,
    training_sets,
)
from benchmarks.groups import one_of
from benchmarks.report import Figure, busyness, print_table, write_json
from benchmarks.setting import QUICK, Setting, Sizes

#: Which module measures which figures, in the order they are run: what needs gigabytes comes last.
_GROUPS: Final[Mapping[tuple[str, ...], Callable[[Setting], Iterator[Figure]]]] = {
    ("F0", "F1", "F2", "F3", "F4", "F5", "F7"): reading.figures,
    ("F6",): libraries.figures,
    ("F8",): training.figures,
    ("F9", "F8b"): pictures.figures,
    ("F10",): cold.figures,
    ("F13",): training_sets.figures,
    ("F17",): strict.figures,
    ("F18",): node_cache.figures,
    ("F19",): late_labels.figures,
    ("F3", "F11", "F12"): scaling.figures,
}
_IDS: Final = frozenset(id for ids in _GROUPS for id in ids)


def measure(setting: Setting) -> list[Figure]:
    """All figures the setting asks for, printed as they come."""
    found: list[Figure] = []
    for ids, figures in _GROUPS.items():
        if setting.wants(*ids):
            start = time.perf_counter()
            measured = list(figures(setting))
            print_table(measured, f"{', '.join(ids)} ({time.perf_counter() - start:.0f} s)")
            found += measured
    return found + busyness(setting.machine)


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description="Throughput of keyed, shuffled samples; figures F0 to F13, F17 to F19.")
    parser.add_argument("--quick", action="store_true", help="everything smaller, about a minute")
    parser.add_argument("--json", type=Path, help="file that maps each id to value, unit, min, max and goal")
    parser.add_argument("--only", type=one_of(sorted(_IDS)), default=(), help="figures to measure, for example F1,F5")
    parser.add_argument(
        "--work", type=Path, help="existing folder for data, 10 GB at most; emptied again (default: a temporary folder)"
    )
    parser.add_argument("--data", type=Path, help="a folder that benchmarks/criteo.py wrote, instead of rows made now")
    parser.add_argument("--rows", type=int, help="rows that most figures read")
    parser.add_argument(
        "--contenders-python", type=Path, default=Path(sys.executable), help="interpreter with the libraries of requirements.txt"
    )
    options = parser.parse_args()
    torch.set_num_threads(1)
    sizes = QUICK if options.quick else Sizes()
    sizes = sizes if options.rows is None else replace(sizes, rows=options.rows)
    with tempfile.TemporaryDirectory(prefix="modyn-benchmark-", dir=options.work) as work:
        setting = Setting(Path(work), sizes, options.contenders_python, options.data, options.only)
        found = measure(setting)
    print_table(found, "All figures")
    if options.json is not None:
        write_json(options.json, found)


if __name__ == "__main__":
    main()
