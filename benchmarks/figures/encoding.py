"""Training on columns of text that are encoded, beside the same columns as the numbers that stand for them."""

import hashlib
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np

from benchmarks.measure import ROUNDS, Machine, Run, Spread, interleave
from benchmarks.report import Figure
from fastpath import TrainingSet
from fastpath.format.index_file import Extents, IndexedFile, write_index_to
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.keys import keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import Task, TrainedModel, TrainingData, train

#: Rows of a training set, by whether it shall be quick.
_ROWS: Final = {False: 100_000, True: 5_000}
_EPOCHS: Final = (1, 5)
_CITIES: Final = [f"city-{number:03}" for number in range(100)]
_NUMBERS: Final = [f"x{number}" for number in range(10)]
_ENCODE: Final[Mapping[str, Any]] = {"city": {"kind": "one_hot", "max_values": 200}}


def encoding(machine: Machine, *, quick: bool) -> Iterator[Figure]:
    """``encode.<epochs>.<figure>`` for trainings from CSV lines on disk: ten numbers, and a city or its number.

    ``prepare`` are the seconds before the first step, of which the pass that fits the vocabulary is a part only with ``encode``;
    ``ratio`` is the whole training over the one without.
    """
    with TemporaryDirectory() as folder:
        data = _written(Path(folder), _ROWS[quick])
        for epochs in _EPOCHS[: 1 if quick else None]:
            yield from _compared(data, epochs, machine)


def _compared(data: TrainingData, epochs: int, machine: Machine) -> Iterator[Figure]:
    trained: dict[str, list[TrainedModel]] = {"plain": [], "encoded": []}

    def contender(name: str) -> Run:
        model = {"model": {"name": "mlp", "hidden": [64, 64]}, "optimizer": {"name": "sgd", "lr": 0.01}}
        features = (
            {"features": [*_NUMBERS, "number"]} if name == "plain" else {"features": [*_NUMBERS, "city"], "encode": _ENCODE}
        )
        spec = TrainingSpec.model_validate(model | features | {"epochs": epochs, "batch_size": 512})
        found = train(spec, data, task=Task("class", n_classes=2), seed=0, threads=1, source="benchmark")
        trained[name].append(found)
        return Run(found.n_steps, sum(found.seconds.values()))

    rounds = interleave({name: partial(contender, name) for name in trained}, machine, rounds=ROUNDS, warm_up=1)
    what = f"{len(data):,} rows, {epochs} epoch{'s' if epochs > 1 else ''}"
    for name, found in trained.items():
        prepare = Spread.of([each.seconds["prepare"] for each in found[-ROUNDS:]])
        yield Figure(f"encode.{epochs}.{name}.prepare", f"{what}, {name}: before the first step", prepare, "s")
        yield Figure(f"encode.{epochs}.{name}", f"{what}, {name}: the whole training", rounds.seconds(name), "s")
    pairs = zip(rounds.runs["encoded"], rounds.runs["plain"], strict=True)
    ratio = Spread.of([encoded.seconds / plain.seconds for encoded, plain in pairs])
    yield Figure(f"encode.{epochs}.ratio", f"{what}: encoded / plain", ratio, "x")


def _written(home: Path, n: int) -> TrainingData:
    """Training set over CSV lines in one shard, as ingestion leaves them."""
    rng = np.random.default_rng(0)
    city, numbers = rng.integers(0, len(_CITIES), n), rng.normal(size=(n, len(_NUMBERS)))
    lines = [
        (",".join([*(f"{value:.4f}" for value in row), str(number), _CITIES[number]]) + "\n").encode()
        for row, number in zip(numbers, city, strict=True)
    ]
    content, lengths = b"".join(lines), np.array([len(line) for line in lines])
    shard, index = home / "shards" / "shops" / "1.bin", home / "batches" / "shops" / "1.arrow"
    for path in (shard, index):
        path.parent.mkdir(parents=True)
    shard.write_bytes(content)
    file = IndexedFile(None, len(content), hashlib.blake2b(content, digest_size=16).hexdigest())
    extents = Extents.of(np.zeros(n, np.int32), np.cumsum(lengths) - lengths, lengths)
    with index.open("wb") as out:
        write_index_to(out, np.arange(n).view("datetime64[us]"), city % 2, None, extents, [file])
    content_of = {
        "name": "shops",
        "root": str(home),
        "format": {"kind": "csv"},
        "time": {"source": "mtime"},
        "label": {"from": {"source": "column", "column": "label"}},
        "batches": {"kind": "directory"},
    }
    columns = [*(Column(name, "float64") for name in _NUMBERS), Column("number", "int64"), Column("city", "string")]
    reader = SampleReader(DatasetSpec.model_validate(content_of), columns, root=str(home), home=home, indexes={1: index})
    return TrainingData(TrainingSet.of(keys_of(1, np.arange(n))), reader)
