"""Contents of a project for the data of a user: spans that fit their extent, and values of the templates ``own``."""

import os
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import yaml

from modyn_dagster.cli.init.look import Look, Rows
from modyn_dagster.cli.init.roles import LabelColumn
from modyn_dagster.cli.init.times import TimeColumn
from modyn_dagster.errors import ConfigError
from modyn_dagster.ingestion.preview.dataset import preview
from modyn_dagster.ingestion.sources.local import LocalSource
from modyn_dagster.spec.base import seconds_of
from modyn_dagster.spec.dataset import DatasetSpec

#: Durations that people think in.
_DURATIONS: Final = ("1s", "10s", "1m", "5m", "15m", "1h", "6h", "1d", "1w", "4w", "13w", "26w", "1y", "5y", "10y", "50y")
#: A history has about so many batches, triggers and intervals of evaluation.
_BATCHES: Final = 30
_TRIGGERS: Final = 5
_INTERVALS: Final = 12
#: Names of features that a pipeline lists; with more it says ``numeric``.
_LISTED: Final = 100
_PLAIN: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True)
class Columns:
    """Roles of the columns: time, label, id, and those that models learn from; ``naming`` are left out.

    Beside numbers and texts of few values (``categories``), other texts are left out; without both, their words are learnt from.
    """

    time: TimeColumn
    label: LabelColumn
    id: str | None
    id_reason: str
    numbers: Sequence[str]
    categories: Sequence[str]
    texts: Sequence[str]
    naming: Sequence[str]

    @property
    def has_rows(self) -> bool:
        """Test that a sample is a row of numbers and categories, not the words of its texts."""
        return bool(self.numbers or self.categories)


@dataclass(frozen=True)
class Rhythm:
    """Extent of batches (``by`` of an import), triggers and intervals."""

    by: str
    amount: int
    span: str
    interval: str

    @classmethod
    def of(cls, look: Look, time: TimeColumn) -> "Rhythm":
        """Fit them to the extent of the data. Raises ``DataError`` for a time that cannot be read."""
        seconds = _seconds(look, time)
        amount = max(1, look.n_rows // _TRIGGERS)
        batch = nearest(seconds / _BATCHES)
        if look.n_files >= _TRIGGERS:
            by = "file"
        else:
            by = f"time:{batch}" if seconds > 0 else f"count:{max(1, -(-look.n_rows // _BATCHES))}"
        return cls(by, amount, nearest(seconds / _TRIGGERS), nearest(seconds / _INTERVALS))


def nearest(seconds: float) -> str:
    """The duration that is nearest to some seconds, by their ratio.

    >>> nearest(80_000), nearest(0)
    ('1d', '1s')
    """
    return min(_DURATIONS, key=lambda each: abs(np.log(seconds_of(each) / max(seconds, 1e-9))))


def scalar(text: str) -> str:
    """A text as a scalar of YAML in one line, in quotes unless it is a plain word.

    >>> scalar("price"), scalar("yes"), scalar("a: b")
    ('price', '"yes"', '"a: b"')
    """
    if _PLAIN.fullmatch(text) and yaml.safe_load(text) == text:
        return text
    return yaml.safe_dump(text, default_style='"', width=float("inf"), allow_unicode=True).removesuffix("\n")


def project_values(folder: Path, look: Look, columns: Columns, rhythm: Rhythm) -> dict[str, str]:
    """Texts of the templates ``shared`` and ``own``.

    Args:
        folder: of the project, by its name.
        look: at the data.
        columns: their roles.
        rhythm: of batches, triggers and intervals.
    """
    time, label = columns.time, columns.label
    metrics = ["accuracy", "f1_macro"] if label.kind == "class" else ["mae", "mse", "r2"]
    return {
        "NAME": folder.name,
        "BY": rhythm.by,
        "MODEL": "which the pipelines name",
        "DATA": "",
        "ROOT": scalar(_root(look.root, folder)),
        "FORMAT": _format(look),
        "PATTERN": scalar(look.pattern),
        "TIME": scalar(time.column) + _how(time),
        "ID": _id(columns.id),
        "KIND": label.kind,
        "CLASSES": _classes(label),
        "LABEL": scalar(label.column),
        "AMOUNT": str(rhythm.amount),
        "SPAN": rhythm.span,
        "INTERVAL": rhythm.interval,
        "INPUTS": _inputs(columns),
        "BUILT_IN": "mlp" if columns.has_rows else "hashed_text, buckets: 4096",
        "METRICS": ", ".join(metrics),
    }


def require_sound(content: bytes, look: Look) -> None:
    """Look at the first rows of all files as ``check --data`` does. Raises the first fault."""
    spec = DatasetSpec.model_validate(yaml.safe_load(content))
    found = preview(LocalSource(look.root), spec)
    if found.faults:
        raise found.faults[0]
    if not found.n_files:
        raise ConfigError(
            "init", "--from", str(look.root), "has no file that a dataset would take: rename those that end in .tmp, .part or ~"
        )


def _seconds(look: Look, time: TimeColumn) -> float:
    """Seconds from the first to the last sample; where a part was looked at, as if the rest went on at its pace."""
    first, last = time.read(look.first), time.read(look.last)
    begin, end = min(first.min(), last.min()), max(first.max(), last.max())
    seconds = float((end - begin) / np.timedelta64(1, "s"))
    is_sorted = bool((first[1:] >= first[:-1]).all())
    return seconds * _share(look.first) if look.n_files == 1 and is_sorted else seconds


def _share(rows: Rows) -> float:
    """Rows of a file per row that was looked at."""
    looked_at = len(next(iter(rows.values.values())))
    return max(1.0, rows.n_rows / max(1, looked_at))


def _root(root: Path, folder: Path) -> str:
    """Root of the data, relative to ``datasets`` where it is beside the project or below, so that both can move."""
    if root.is_relative_to(folder.parent):
        return os.path.relpath(root, folder / "datasets")
    return str(root)


def _format(look: Look) -> str:
    delimiter = look.format.get("delimiter")
    return str(look.format["kind"]) + ("" if delimiter is None else f"\n  delimiter: {scalar(delimiter)}")


def _how(time: TimeColumn) -> str:
    if time.format is not None:
        return f"\n  format: {scalar(time.format)}"
    return f"\n  unit: {time.unit}" if time.unit != "s" else ""


def _id(column: str | None) -> str:
    if column is None:
        return ""
    return (
        f"id: # names a sample: for deletions, and for labels that arrive later\n  source: column\n  column: {scalar(column)}\n"
    )


def _classes(label: LabelColumn) -> str:
    if label.classes:
        return f"  classes: [{', '.join(map(scalar, label.classes))}] # any other is an error\n"
    return f"  n_classes: {label.n_classes} # from 0 on; any other is an error\n" if label.n_classes is not None else ""


def _inputs(columns: Columns) -> str:
    if not columns.has_rows:
        listed = ", ".join(map(scalar, columns.texts))
        sizes = "buckets: 4096\n      length: 64"
        return f"  parser: # words to numbers, without a vocabulary\n    text:\n      columns: [{listed}]\n      {sizes}"
    encode = "".join(f"\n    {scalar(name)}: {{kind: one_hot, beyond: unknown}}" for name in columns.categories)
    encoded = f"\n  encode: # a column per value, as of each training set; also hash, embedding{encode}" if encode else ""
    if len(columns.numbers) > _LISTED and not columns.naming:
        return f"  features: numeric # all columns of numbers but time, id and label, and those that are encoded{encoded}"
    return f"  features: [{', '.join(map(scalar, [*columns.numbers, *columns.categories]))}]{encoded}"
