"""Streams of the comparison of triggering policies: files of a dataset, and units of the policies."""

import re
import sys
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd

_HASHED: Final = 512
_WORD: Final = re.compile(r"[a-z]+")
_DEMO: Final = Path(__file__).resolve().parents[1] / "examples" / "baseball"


@dataclass(frozen=True, slots=True)
class Units:
    """Units of a stream, in which its policies are given.

    Attributes:
        every: samples between two points of policies that measure.
        amounts: a small and a large number of samples.
        times: a short and a long duration.
        sample_seconds: of waiting, that a second of training is worth.
        mistakes: avoidable misclassifications that a second of training is worth.
        accuracy: that performance policies hold a model to.
        mmd: fixed threshold for MMD.
        interval: of evaluation.
        batch: of the stream.
    """

    every: int
    amounts: tuple[int, int]
    times: tuple[str, str]
    sample_seconds: float
    mistakes: float
    accuracy: float
    mmd: float
    interval: str
    batch: str


@dataclass(frozen=True, slots=True)
class LabelledStream:
    """Samples in order of time.

    Attributes:
        name: of the dataset.
        times: ``int64[n]``, seconds since 1970.
        features: ``float32[n, d]``.
        labels: ``int64[n]``, from 0.
        units: of its policies.
        training: fields of the training block.
    """

    name: str
    times: npt.NDArray[np.int64]
    features: npt.NDArray[np.float32]
    labels: npt.NDArray[np.int64]
    units: Units
    training: Mapping[str, Any]

    def first(self, share: float) -> "LabelledStream":
        """First part of the stream."""
        n = int(len(self.times) * share)
        return replace(self, times=self.times[:n], features=self.features[:n], labels=self.labels[:n])

    def records(self) -> npt.NDArray[np.void]:
        """Records of the files, one for each sample."""
        dtype = np.dtype([("time", "<i8"), ("label", "<i8"), ("x", "<f4", (self.features.shape[1],))])
        rows = np.empty(len(self.times), dtype)
        rows["time"], rows["label"], rows["x"] = self.times, self.labels, self.features
        return rows

    def dataset(self, root: Path) -> dict[str, Any]:
        """Block of the dataset."""
        n_classes = int(self.labels.max()) + 1
        return {
            "name": self.name,
            "root": str(root),
            "format": {
                "kind": "fixed_rows",
                "dtype": [["time", "<i8"], ["label", "<i8"], ["x", f"({self.features.shape[1]},)f4"]],
            },
            "batches": {"kind": "file", "pattern": "*.bin"},
            "time": {"source": "column", "column": "time", "unit": "s"},
            "label": {"kind": "class", "n_classes": n_classes, "from": {"source": "column", "column": "label"}},
        }


def elec2(data: Path) -> LabelledStream:
    """Electricity prices in New South Wales, half hours of 1996-1998: will the price rise? Columns as its SOURCE.md advises."""
    table = pd.read_csv(data / "elec2" / "elec2.csv.gz")
    columns = ["day", "period", "nswdemand", "vicprice", "vicdemand", "transfer"]
    units = Units(336, (1440, 5760), ("30d", "120d"), 1e9, 150, 0.8, 0.05, "14d", "30d")
    return _stream("elec2", table["timestamp"], table[columns].to_numpy(), table["label"], units, epochs=20, hidden=32)


def arxiv_cs_titles(data: Path) -> LabelledStream:
    """Titles of papers, 2015-2019, as bags of hashed words: in which of five feeds do they appear?"""
    table = pd.read_parquet(data / "arxiv_cs_titles" / "arxiv_cs.parquet", columns=["date", "label", "title"])
    units = Units(500, (2500, 10_000), ("90d", "1y"), 5e9, 150, 0.8, 0.02, "30d", "60d")
    return _stream("arxiv_cs_titles", table["date"], _hashed(table["title"]), table["label"], units, epochs=5, hidden=64)


def digits_by_era(data: Path) -> LabelledStream:
    """Handwritten digits of three collections, one after the other: which digit? Its times are made up, an hour apart."""
    with np.load(data / "digits_by_era" / "digits_28x28.npz") as file:
        images, labels, source = file["images"], file["label"], file["source"]
    era = np.array([("usps", "mnist", "optdigits").index(name.lower().split("_")[0]) for name in source.tolist()])
    order = np.argsort(era, kind="stable")
    # Means of squares of 2 x 2.
    small = images[order].reshape(-1, 14, 2, 14, 2).mean(axis=(2, 4)).reshape(len(order), -1)
    times = np.datetime64("1988-01-01", "s") + np.arange(len(order)) * np.timedelta64(3600, "s")
    units = Units(500, (1000, 4000), ("42d", "168d"), 5e9, 100, 0.9, 0.02, "42d", "42d")
    return _stream("digits_by_era", times, small / 255, labels[order], units, epochs=5, hidden=64)


def demo(_: Path) -> LabelledStream:
    """The stream of the demo: seasons of baseball players, 1900-2024; pitcher or not?"""
    sys.path.insert(0, str(_DEMO))
    from make_data import BATTING, player_seasons  # type: ignore[import-not-found, unused-ignore]  # of a folder put on the path a line before

    table = player_seasons()
    units = Units(500, (2500, 10_000), ("5y", "20y"), 5e10, 40, 0.95, 0.02, "2y", "5y")
    return _stream("demo", table["time"], table[BATTING].to_numpy(), table["label"], units, epochs=20, hidden=32)


STREAMS: Final[Mapping[str, Callable[[Path], LabelledStream]]] = {
    "elec2": elec2,
    "arxiv_cs_titles": arxiv_cs_titles,
    "demo": demo,
}


def write_batches(stream: LabelledStream, folder: Path, seconds: int) -> int:
    """One file per stretch of sample time; returns their number."""
    folder.mkdir(parents=True)
    rows = stream.records()
    cuts = np.flatnonzero(np.diff((stream.times - stream.times[0]) // seconds)) + 1
    parts = np.split(rows, cuts)
    for ordinal, part in enumerate(parts):
        (folder / f"{ordinal:05d}.bin").write_bytes(part.tobytes())
    return len(parts)


def _stream(
    name: str, times: Any, features: npt.NDArray[Any], labels: Any, units: Units, *, epochs: int, hidden: int
) -> LabelledStream:
    training = {
        "features": ["x"],
        "model": {"name": "mlp", "hidden": [hidden]},
        "optimizer": {"name": "adam", "lr": 0.003},
        "epochs": epochs,
        "batch_size": 128,
        # Finetuning on the samples since the last trigger, as in the paper, §7.1.
        "use_previous_model": True,
    }
    seconds = pd.to_datetime(times).to_numpy().astype("datetime64[s]").astype(np.int64)
    return LabelledStream(name, seconds, features.astype(np.float32), np.asarray(labels, dtype=np.int64), units, training)


def _hashed(titles: Any) -> npt.NDArray[np.float32]:
    """Hashed words that occur, ``[n, 512]``."""
    found = np.zeros((len(titles), _HASHED), np.float32)
    for row, title in enumerate(titles):
        found[row, [zlib.crc32(word.encode()) % _HASHED for word in _WORD.findall(title.lower())]] = 1.0
    return found
