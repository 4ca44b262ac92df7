"""A process that streams epochs, each from a store opened anew, and prints the anonymous memory each took; see ``scaling``."""

import json
import sys
from pathlib import Path

from benchmarks.epochs import stream, tensors
from benchmarks.measure import ROUNDS, anonymous_bytes
from benchmarks.rows import BATCH, ROW
from fastpath import SampleStore, TrainingSet


def main(home: str, root: str, files: int, training_set: str, checksum: str) -> list[int]:
    """Of each epoch the most that RssAnon grew, from before the store was opened to any of its batches."""
    # What torch, NumPy and Arrow set up when they are first used is not the stream's.
    first = Path(home) / "batches/criteo/1.arrow"
    with SampleStore.open({1: first}, dataset="criteo", root=root, home=home, dtype=ROW) as store:
        for batch in stream(store, TrainingSet.open(Path(training_set), checksum).slice(0, 1)):
            tensors(batch)
    return [_epoch(home, root, files, training_set, checksum) for _ in range(ROUNDS)]


def _epoch(home: str, root: str, files: int, training_set: str, checksum: str) -> int:
    most = before = anonymous_bytes()
    indexes = {i: Path(home) / f"batches/criteo/{i}.arrow" for i in range(1, files + 1)}
    with SampleStore.open(indexes, dataset="criteo", root=root, home=home, dtype=ROW, threads=2) as store:
        for batch in stream(store, TrainingSet.open(Path(training_set), checksum), threads=2):
            tensors(batch)
            if batch.number % 16 == 0 or len(batch.keys) < BATCH:
                most = max(most, anonymous_bytes())
    return most - before


if __name__ == "__main__":
    print(json.dumps({"bytes": main(**json.loads(sys.argv[1]))}))
