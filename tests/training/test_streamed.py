"""Trainings on samples on disk: every format, streamed or kept in memory, with any number of threads, gives the same bits."""

import gc
import io
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from PIL import Image

from fastpath import TrainingSet
from modyn_dagster.catalog.datasets import Column
from modyn_dagster.data.reader import SampleReader
from modyn_dagster.data.rows.row_decoding import row_dtype
from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import BadSample, CorruptFile, NonFiniteLoss, UnknownKey
from modyn_dagster.ingestion.formats.parquet import encode_table
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.spec.dataset import DatasetSpec
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import FastPath, Task, TrainedModel, TrainingData, build_predictor, train
from modyn_dagster.training.data import Reader
from modyn_dagster.training.inputs.dataset_statistics import measure_dataset
from modyn_dagster.training.parsing.parser import Parsing
from tests.training.rows_on_disk import ROW, write_batch
from tests.training.table import spec_of
from tests.variants import represented

SIZES = [150, 170]
N = sum(SIZES)
LABELS = np.random.default_rng(0).integers(0, 3, N)
TASK = Task("class", n_classes=3, exclude=frozenset({"kind", "name"}))
#: In memory; streamed without threads, with one and with several; out of copies in memory.
WAYS = [
    FastPath(),
    FastPath(cache_bytes=0, prefetch=0),
    FastPath(cache_bytes=0),
    FastPath(cache_bytes=0, threads=3, prefetch=5),
    FastPath(cache_bytes=0, resident=True),
]


def reader_of(
    home: Path,
    format_: dict[str, Any],
    blobs: list[bytes],
    columns: list[Column] | None = None,
    behind: tuple[bytes, bytes] = (b"", b""),
) -> SampleReader:
    """Samples in two batches, as ingestion leaves them, with further bytes behind those of each."""
    indexes, first = {}, 0
    for ordinal, n in enumerate(SIZES):
        part = blobs[first : first + n]
        lengths = [len(blob) for blob in part]
        indexes[ordinal] = write_batch(home, "d", ordinal, b"".join(part) + behind[ordinal], lengths, LABELS[first : first + n])
        first += n
    files = format_["kind"] == "files"
    spec = {
        "name": "d",
        "root": str(home),
        "format": format_,
        "time": {"source": "mtime"},
        "label": {"from": {"source": "sidecar"} if files else {"source": "column", "column": "kind"}},
        "batches": {"kind": "directory"},
    }
    return SampleReader(DatasetSpec.model_validate(spec), columns, root=str(home), home=home, indexes=indexes)


def fixed_rows(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    rng = np.random.default_rng(1)
    rows = np.empty(N, dtype=ROW)
    rows["a"], rows["b"], rows["kind"] = rng.normal(LABELS, 1), rng.integers(-99, 99, N), LABELS
    fields = [[name, ROW[name].str] for name in ROW.names or ()]
    blobs = [row.tobytes() for row in rows]
    columns = [Column(name, code) for name, code in fields]
    return reader_of(home, {"kind": "fixed_rows", "dtype": fields}, blobs, columns), {}


def grouped_rows(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    reader, _ = fixed_rows(home)
    groups = {"numeric": {"columns": ["b", "a"]}, "categorical": {"columns": ["kind"], "dtype": "int64"}}
    return reader, {"features": groups, "model": {"factory": "training_user_code:recommender", "config": {"n_categories": 3}}}


def parquet(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    columns = [Column("x", "float64"), Column("flag", "bool"), Column("kind", "int64"), Column("vector", "(3,)<f4")]
    rng = np.random.default_rng(2)
    rows = np.empty(N, dtype=row_dtype(columns))
    rows["x"], rows["flag"], rows["kind"] = rng.normal(1e6 + LABELS, 1), rng.integers(0, 2, N), LABELS
    rows["vector"] = rng.normal(size=(N, 3))
    return reader_of(home, {"kind": "parquet"}, [row.tobytes() for row in rows], columns), {}


def csv(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    columns = [Column("x", "float64"), Column("name", "string"), Column("n", "int64")]
    rng = np.random.default_rng(3)
    blobs = [
        f"{x:.4f},s{i},{int(n)}".encode() for i, (x, n) in enumerate(zip(rng.normal(LABELS), rng.integers(0, 99, N), strict=True))
    ]
    return reader_of(home, {"kind": "csv"}, blobs, columns), {}


def encoded_csv(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    """Texts, and numbers of which some are missing."""
    columns = [Column("x", "float64"), Column("name", "string"), Column("n", "int64")]
    rng = np.random.default_rng(7)
    numbers = [f"{x:.4f}" if i % 5 else "" for i, x in enumerate(rng.normal(LABELS))]
    blobs = [f"{x},{'abc'[label]}{i % 7},{i % 4}".encode() for i, (x, label) in enumerate(zip(numbers, LABELS, strict=True))]
    encode = {"name": {"kind": "one_hot", "max_values": 15, "beyond": "unknown"}, "n": {"kind": "hash", "buckets": 3}}
    fields = {"encode": encode, "features": ["x", "name", "n"], "impute": {"x": {"by": "median", "indicator": True}}}
    return reader_of(home, {"kind": "csv"}, blobs, columns), fields


def encoded_parquet(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    """Texts behind the rows of a shard."""
    columns = [Column("x", "float64"), Column("name", "string"), Column("kind", "int64")]
    names = [f"{'abc'[label]}{i % 5}" for i, label in enumerate(LABELS)]
    rows: list[bytes] = []
    texts: list[bytes] = []
    for part in (slice(0, SIZES[0]), slice(SIZES[0], N)):
        x, n = np.full(N, 0.5)[part], len(LABELS[part])
        content = pa.table({"x": x, "name": pa.array(names[part], pa.large_string()), "kind": LABELS[part]})
        (records, *others), width = encode_table(columns, content)
        rows += [row.tobytes() for row in records.reshape(n, width)]
        texts.append(b"".join(each.tobytes() for each in others))
    reader = reader_of(home, {"kind": "parquet"}, rows, columns, (texts[0], texts[1]))
    return reader, {"encode": {"name": {"kind": "embedding", "dimension": 4}}, "features": ["x", "name"]}


def parsed(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    """Files of different lengths."""
    rng = np.random.default_rng(4)
    blobs = [f"{x:.4f},{y}".encode() for x, y in zip(rng.normal(LABELS), rng.integers(0, 999, N), strict=True)]
    return reader_of(home, {"kind": "files", "suffixes": [".txt"]}, blobs), {"parser": "parsing_user_code:two_numbers"}


def parsed_one_by_one(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    """Files of one length, in processes."""
    blobs = [f"{x:08.4f}".encode() for x in np.random.default_rng(5).normal(LABELS + 10)]
    parser = {"function": "parsing_user_code:one_number", "per": "sample", "workers": {"kind": "processes", "count": 2}}
    return reader_of(home, {"kind": "files", "suffixes": [".txt"]}, blobs), {"parser": parser}


def images(home: Path) -> tuple[SampleReader, dict[str, Any]]:
    return reader_of(home, {"kind": "files", "suffixes": [".jpg"]}, [jpeg(label, i) for i, label in enumerate(LABELS)]), {
        "parser": {"images": {"size": [4, 4], "dtype": "float32", "workers": {"count": 2}}},
        "model": {"factory": "training_user_code:linear"},
    }


def jpeg(label: int, seed: int) -> bytes:
    noise = np.random.default_rng(seed).integers(0, 20, (10 + seed % 3, 9, 3), dtype=np.uint8)
    noise[..., label] += 200
    file = io.BytesIO()
    Image.fromarray(noise).save(file, "JPEG")
    return file.getvalue()


FORMATS = [fixed_rows, grouped_rows, parquet, csv, encoded_csv, encoded_parquet, parsed, parsed_one_by_one, images]
Format = Callable[[Path], tuple[SampleReader, dict[str, Any]]]


def chosen_from(keys: Any = None) -> TrainingSet:
    """Most of the samples, some of them twice, in another order."""
    everything = np.concatenate([keys_of(ordinal, np.arange(n)) for ordinal, n in enumerate(SIZES)])
    rng = np.random.default_rng(6)
    chosen = everything[rng.integers(0, N, 300)] if keys is None else keys
    return TrainingSet.of(chosen, rng.uniform(0.5, 2, len(chosen)).astype(np.float32))


@dataclass(frozen=True)
class Plain:
    """A reader that is no more than that."""

    read: Callable[[KeyArray], Samples]


def trained(reader: Reader, spec: TrainingSpec, way: FastPath, chosen: TrainingSet | None = None) -> TrainedModel:
    data = TrainingData(chosen or chosen_from(), reader, way)
    return train(spec, data, task=TASK, seed=3, threads=1, source="pipeline p")


def bits(model: TrainedModel) -> Any:
    return {name: tensor.numpy().tobytes() for name, tensor in model.state_dict.items()}, model.losses, model.curve


@pytest.mark.process
@represented(
    "make", {make.__name__: make for make in FORMATS}, "laws-training", "grouped_rows", "csv", "encoded_parquet", "images"
)
def test_every_way_to_the_samples_gives_the_same_bits(make: Format, tmp_path: Path, user_code: str) -> None:
    reader, fields = make(tmp_path)
    spec = spec_of(**{"model": {"name": "mlp", "hidden": [8], "dropout": 0.1}, "epochs": 2, "batch_size": 37, **fields})
    first, *others = (trained(reader, spec, way) for way in WAYS)
    through_samples = trained(Plain(reader.read), spec, FastPath())
    for other in (*others, through_samples):
        assert bits(other) == bits(first)
        assert other.architecture == first.architecture


@pytest.mark.process
@represented(
    "make", {make.__name__: make for make in FORMATS}, "laws-training", "fixed_rows", "parquet", "csv", "parsed", "images"
)
def test_what_is_learnt_is_predicted_from_samples_as_readers_give_them(make: Format, tmp_path: Path, user_code: str) -> None:
    reader, fields = make(tmp_path)
    found = trained(reader, spec_of(**{"epochs": 30, "optimizer": {"lr": 0.05}, "batch_size": 50, **fields}), WAYS[2])
    predict = build_predictor(found.architecture, found.state_dict, threads=1, source="p", where=reader.store.where)
    samples = reader.read(chosen_from().keys())
    assert samples.labels is not None
    assert (predict(samples).argmax(1) == samples.labels).mean() > 0.45, "guessing gives a third"


@pytest.mark.parametrize("shuffle", [True, False, "blocks"])
def test_every_kind_of_shuffling_is_the_same_from_memory(shuffle: bool | str, tmp_path: Path) -> None:
    reader, _ = fixed_rows(tmp_path)
    spec = spec_of(batch_size=37, shuffle=shuffle, block_size=64, drop_last=True)
    assert bits(trained(reader, spec, WAYS[0])) == bits(trained(reader, spec, WAYS[3]))


@pytest.mark.parametrize("way", WAYS[:4])
def test_a_sample_that_cannot_be_parsed_is_named_with_its_place(way: FastPath, tmp_path: Path, user_code: str) -> None:
    blobs = [jpeg(label, i) for i, label in enumerate(LABELS)]
    blobs[200] = blobs[200][:300]
    reader = reader_of(tmp_path, {"kind": "files", "suffixes": [".jpg"]}, blobs)
    _, fields = images(tmp_path / "other")
    keys = np.concatenate([keys_of(ordinal, np.arange(n)) for ordinal, n in enumerate(SIZES)])
    with pytest.raises(BadSample, match=r"images failed on the sample with key \d+ of dataset d \(.*1.bin, offset ") as caught:
        trained(reader, spec_of(**fields), way, chosen_from(keys))
    assert caught.value.key == keys[200]
    assert caught.value.offset == sum(map(len, blobs[150:200]))


def test_errors_of_the_store_are_ours(tmp_path: Path) -> None:
    reader, _ = fixed_rows(tmp_path)
    keys = chosen_from().keys()
    keys[250] = 7 << 32
    with pytest.raises(UnknownKey, match=f"no sample with key {7 << 32}"):
        trained(reader, spec_of(batch_size=20), WAYS[2], chosen_from(keys))
    shard = tmp_path / "shards" / "d" / "1.bin"
    shard.write_bytes(shard.read_bytes()[:-1])
    with pytest.raises(CorruptFile, match=r"1\.bin"):
        trained(reader, spec_of(batch_size=20), WAYS[2])


def test_a_training_that_ends_early_leaves_no_thread(tmp_path: Path, user_code: str) -> None:
    reader, _ = fixed_rows(tmp_path)
    before = set(threading.enumerate())
    with pytest.raises(NonFiniteLoss):
        trained(reader, spec_of(loss={"factory": f"{user_code}:poisoned_loss"}, batch_size=10), WAYS[3])
    gc.collect()
    deadline = time.monotonic() + 1
    while set(threading.enumerate()) - before:
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_float_group_keeps_its_digits_until_it_is_standardised(tmp_path: Path, user_code: str) -> None:
    """Values of a million and some: as float32 their differences would be lost."""
    reader, _ = parquet(tmp_path)
    model = {"factory": f"{user_code}:by_keywords"}
    spec = spec_of(model=model, features={"x": {"columns": ["x"]}}, epochs=30, optimizer={"lr": 0.1})
    plain = spec_of(features=["x"], epochs=30, optimizer={"lr": 0.1})
    grouped, single = trained(reader, spec, WAYS[2]), trained(reader, plain, WAYS[2])
    assert grouped.losses == pytest.approx(single.losses, rel=1e-5)


def test_a_fast_path_is_no_part_of_a_model(tmp_path: Path) -> None:
    reader, _ = fixed_rows(tmp_path)
    ways = [replace(WAYS[2], threads=2), replace(WAYS[2], pin=False)]
    assert len({str(trained(reader, spec_of(), way).architecture) for way in ways}) == 1


def test_a_set_that_stays_in_memory_does_not_keep_what_it_was_read_into(tmp_path: Path, user_code: str) -> None:
    reader, fields = parsed(tmp_path)
    spec = spec_of(**fields)
    found = measure_dataset(spec, TrainingData(chosen_from(), reader), TASK, Parsing(spec.parser, "p"))
    assert found.cached is not None
    for chunk in found.cached:
        assert all(array.base is None for array in (chunk.keys, chunk.weights, chunk.truth))


def test_workers_are_no_part_of_a_model(tmp_path: Path, user_code: str) -> None:
    reader, fields = parsed(tmp_path)
    parsers = [{"function": fields["parser"], "workers": {"count": count}} for count in (1, 2)]
    one, other = (trained(reader, spec_of(parser=parser), FastPath()) for parser in parsers)
    assert one.architecture == other.architecture
