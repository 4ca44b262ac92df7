"""The streams that selection policies are compared on, as files of a dataset, and the small model for each stream."""

import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from modyn_dagster.spec.base import seconds_of

Content = dict[str, Any]
_DAY: Final = 86_400
_YEAR: Final = 365 * _DAY


@dataclass(frozen=True, slots=True)
class Stream:
    """Samples in order of time.

    Attributes:
        name: of the dataset.
        times: ``int64[n]``, seconds since 1970.
        labels: ``int64[n]``, from 0.
        samples: ``uint8[n, values]`` of pictures, or ``n`` texts.
        every: sample time between two triggers, and of an interval of evaluation.
        training: fields of the training block that belong to the data: model, optimizer, epochs.
        metrics: to measure; the first is the score.
    """

    name: str
    times: npt.NDArray[np.int64]
    labels: npt.NDArray[np.int64]
    samples: npt.NDArray[Any]
    every: str
    training: Mapping[str, Any]
    metrics: tuple[str, ...] = ("accuracy",)

    @property
    def start(self) -> date:
        """Day of the first sample, where triggers and intervals are counted from."""
        return datetime.fromtimestamp(int(self.times[0]), tz=UTC).date()

    def first(self, n: int) -> "Stream":
        """The first samples of it."""
        return replace(self, times=self.times[:n], labels=self.labels[:n], samples=self.samples[:n])

    def dataset(self, root: Path) -> Content:
        """The dataset's block: a fifth is for evaluation alone."""
        texts = self.samples.dtype == object
        fields = [["time", "<i8"], ["label", "<i8"], ["x", f"({self.samples[0].size if not texts else 0},)u1"]]
        return {
            "name": self.name,
            "root": str(root),
            "format": {"kind": "parquet"} if texts else {"kind": "fixed_rows", "dtype": fields},
            "batches": {"kind": "file", "pattern": "*.parquet" if texts else "*.bin"},
            "time": {"source": "column", "column": "time", "unit": "s"},
            "label": {
                "kind": "class",
                "n_classes": int(self.labels.max()) + 1,
                "from": {"source": "column", "column": "label"},
            },
            "split": {"train": 0.8, "evaluate": 0.2},
        }

    def write(self, folder: Path) -> int:
        """One file per stretch between triggers; returns their number."""
        folder.mkdir(parents=True)
        cuts = np.flatnonzero(np.diff((self.times - self.times[0]) // seconds_of(self.every))) + 1
        parts = np.split(np.arange(len(self.times)), cuts)
        for ordinal, part in enumerate(parts):
            self._write(folder / f"{ordinal:05d}", part)
        return len(parts)

    def _write(self, path: Path, part: npt.NDArray[np.int64]) -> None:
        if self.samples.dtype == object:
            columns = {"time": self.times[part], "label": self.labels[part], "title": self.samples[part]}
            pq.write_table(pa.table(columns), path.with_suffix(".parquet"))
            return
        width = self.samples.shape[1]
        rows = np.empty(len(part), np.dtype([("time", "<i8"), ("label", "<i8"), ("x", "u1", (width,))]))
        rows["time"], rows["label"], rows["x"] = self.times[part], self.labels[part], self.samples[part]
        path.with_suffix(".bin").write_bytes(rows.tobytes())


def digits_by_era(data: Path) -> Stream:
    """Handwritten digits, USPS, then MNIST, then optdigits: the order of their collections, the times in between made up."""
    found = np.load(data / "digits_by_era" / "digits_28x28.npz")
    eras = [np.flatnonzero(found["source"] == source) for source in ("usps", "mnist", "optdigits")]
    order = np.concatenate([_shuffled("digits_by_era", era) for era in eras])
    times = _spread(len(order), 12 * _YEAR + _DAY)
    pictures = found["images"][order].reshape(len(order), -1)
    return Stream("digits_by_era", times, found["label"][order].astype(np.int64), pictures, "2y", _mlp(64))


def emoji_stream(data: Path) -> Stream:
    """Emoji by release, spread over the days until the next one, at 16 x 16 pixels; which of nine categories?

    One category is 59 % of all: the score is macro-F1.
    """
    index = pd.read_csv(data / "emoji_stream" / "emoji_index.csv.gz")
    images = np.load(data / "emoji_stream" / "emoji_images.npz")["images"]
    days = pd.to_datetime(index["date"]).to_numpy().astype("datetime64[s]").astype(np.int64)
    released = np.unique(days)
    order, times = [], []
    for start, end in zip(released, [*released[1:], released[0] + 9 * _YEAR + _DAY], strict=True):
        order.append(_shuffled("emoji_stream", np.flatnonzero(days == start)))
        times.append(start + _spread(len(order[-1]), int(end - start)))
    place = np.concatenate(order)
    quartered = images.reshape(-1, 16, 2, 16, 2, 3).mean(axis=(2, 4)).astype(np.uint8)
    pictures = quartered[place].reshape(len(place), -1)
    labels = index["label"].to_numpy()[place].astype(np.int64)
    return Stream("emoji_stream", np.concatenate(times), labels, pictures, "1y", _mlp(128), ("f1_macro", "accuracy"))


def arxiv_cs_titles(data: Path) -> Stream:
    """Titles of papers, 2015-2019: in which of five feeds do they appear?"""
    table = pd.read_parquet(data / "arxiv_cs_titles" / "arxiv_cs.parquet", columns=["date", "label", "title"])
    times = pd.to_datetime(table["date"]).to_numpy().astype("datetime64[s]").astype(np.int64)
    text = {"columns": ["title"], "buckets": 4096, "length": 24}
    model = {"name": "hashed_text", "buckets": 4096, "embedding": 16, "hidden": [32]}
    training = {"parser": {"text": text}, "model": model, "optimizer": {"name": "adam", "lr": 0.003}, "epochs": 3}
    return Stream("arxiv_cs_titles", times, table["label"].to_numpy(np.int64), table["title"].to_numpy(object), "40w", training)


STREAMS: Final[Mapping[str, Callable[[Path], Stream]]] = {
    "digits_by_era": digits_by_era,
    "emoji_stream": emoji_stream,
    "arxiv_cs_titles": arxiv_cs_titles,
}


def _mlp(hidden: int) -> Content:
    return {
        "features": ["x"],
        "model": {"name": "mlp", "hidden": [hidden]},
        "optimizer": {"name": "adam", "lr": 0.001},
        "epochs": 5,
    }


def _shuffled(name: str, places: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.random.default_rng(zlib.crc32(name.encode())).permutation(places)


def _spread(n: int, seconds: int) -> npt.NDArray[np.int64]:
    """Moments of ``n`` samples, evenly over so much time."""
    return np.arange(n, dtype=np.int64) * seconds // max(1, n)
