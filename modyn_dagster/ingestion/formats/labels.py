"""Class labels and regression targets, from columns or from texts beside files."""

from collections.abc import Sequence
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from fastpath.array_types import Int64Array
from modyn_dagster.errors import DataError
from modyn_dagster.spec.sources import LabelSpec

Float64Array = npt.NDArray[np.float64]
#: Classes of n samples: indices ``int64[n]``, or names (an Arrow string array) that are mapped when the batch is committed.
ClassLabels: TypeAlias = Int64Array | pa.Array


def class_labels(values: pa.Array, spec: LabelSpec, file: str, column: str) -> ClassLabels:
    """Classes of n rows. Where labels arrive later, a missing one is -1, or an empty name: the sample has none yet.

    Raises ``DataError`` naming the row: a label is missing, unknown, negative, or not below ``n_classes``.
    """
    if spec.arrives == "later" and not pa.types.is_large_string(values.type) and not pa.types.is_string(values.type):
        return _classes_with_gaps(values, spec, file, column)
    if pa.types.is_string(values.type) or pa.types.is_large_string(values.type):
        names = values.cast(pa.string())
        if spec.arrives == "with_sample":
            _require_present(pc.equal(names, ""), file, column)
        if spec.classes is not None:
            known = [*spec.classes, ""] if spec.arrives == "later" else spec.classes
            _require_known(names, known, file, column)
        return names
    if pa.types.is_integer(values.type) or pa.types.is_boolean(values.type):
        labels: Int64Array = values.cast(pa.int64()).to_numpy(zero_copy_only=False)
        _require_in_range(labels, spec.n_classes, file, column)
        return labels
    if pa.types.is_floating(values.type):
        _require_present(pc.is_nan(values), file, column)
    raise DataError(file, f"class labels are integers or text, this column is {values.type}", column=column)


def _classes_with_gaps(values: pa.Array, spec: LabelSpec, file: str, column: str) -> Int64Array:
    """Integer classes of a column that may have NaN for samples without a label: -1 there."""
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type) or pa.types.is_boolean(values.type)):
        raise DataError(file, f"class labels are integers or text, this column is {values.type}", column=column)
    numbers = values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    missing = np.isnan(numbers)
    broken = ~missing & (numbers != np.floor(numbers))
    if broken.any():
        row = int(np.argmax(broken))
        raise DataError(file, f"the class {numbers[row]} is not an integer", row=row + 1, column=column)
    labels = np.where(missing, 0, numbers).astype(np.int64)
    _require_in_range(labels, spec.n_classes, file, column)
    return np.where(missing, np.int64(-1), labels)


def target_labels(values: pa.Array, file: str, column: str, *, may_miss: bool = False) -> Float64Array:
    """Regression targets of n rows, ``float64[n]``; ``DataError`` names the first that is not a finite number.

    ``may_miss`` allows NaN for samples without one.
    """
    if not (pa.types.is_integer(values.type) or pa.types.is_floating(values.type)):
        raise DataError(file, f"a regression target is a number, this column is {values.type}", column=column)
    targets = np.asarray(values.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False))
    unusable = ~np.isfinite(targets) & ~(may_miss & np.isnan(targets))
    if unusable.any():
        row = int(np.argmax(unusable))
        problem = "the target is missing" if np.isnan(targets[row]) else f"the target is {targets[row]}, not a finite number"
        raise DataError(file, problem, row=row + 1, column=column)
    return targets


def class_texts(texts: Sequence[str], paths: Sequence[str], spec: LabelSpec, *, as_integers: bool | None) -> ClassLabels:
    """Classes of n files, from texts.

    Args:
        texts: one per file, without surrounding space.
        paths: of the files, for errors.
        spec: the dataset's label.
        as_integers: true if earlier batches have integer classes; None: integers if all texts are.
    """
    for text, path in zip(texts, paths):
        if not text:
            raise DataError(path, "the label is missing")
    if spec.classes is not None or spec.n_classes is not None:
        as_integers = spec.n_classes is not None
    elif as_integers is None:
        as_integers = all(text.isdecimal() for text in texts)
    if not as_integers:
        return pa.array([_known(text, path, spec.classes) for text, path in zip(texts, paths)], pa.string())
    return np.array([_class_index(text, path, spec.n_classes) for text, path in zip(texts, paths)], dtype=np.int64)


def target_texts(texts: Sequence[str], paths: Sequence[str]) -> Float64Array:
    """Regression targets of n files, from texts, ``float64[n]``."""
    return np.array([_target(text, path) for text, path in zip(texts, paths)], dtype=np.float64)


def _require_present(missing: pa.Array, file: str, column: str) -> None:
    if pc.any(missing).as_py():
        row = int(np.argmax(missing.to_numpy(zero_copy_only=False)))
        raise DataError(file, "the label is missing", row=row + 1, column=column)


def _require_known(names: pa.Array, classes: Sequence[str], file: str, column: str) -> None:
    unknown = pc.invert(pc.is_in(names, value_set=pa.array(classes, pa.string()))).to_numpy(zero_copy_only=False)
    if unknown.any():
        row = int(np.argmax(unknown))
        raise DataError(file, _unknown(names[row].as_py(), classes), row=row + 1, column=column)


def _require_in_range(labels: Int64Array, n_classes: int | None, file: str, column: str) -> None:
    outside = labels < 0 if n_classes is None else (labels < 0) | (labels >= n_classes)
    if outside.any():
        row = int(np.argmax(outside))
        raise DataError(file, _out_of_range(int(labels[row]), n_classes), row=row + 1, column=column)


def _known(text: str, path: str, classes: Sequence[str] | None) -> str:
    if classes is not None and text not in classes:
        raise DataError(path, _unknown(text, classes))
    return text


def _class_index(text: str, path: str, n_classes: int | None) -> int:
    try:
        label = int(text)
    except ValueError:
        raise DataError(path, f"the label {text!r} is not an integer") from None
    if label < 0 or label >= (n_classes or 2**63):
        raise DataError(path, _out_of_range(label, n_classes))
    return label


def _target(text: str, path: str) -> float:
    try:
        target = float(text)
    except ValueError:
        raise DataError(path, f"the target {text!r} is not a number" if text else "the target is missing") from None
    if not np.isfinite(target):
        raise DataError(path, f"the target is {target}, not a finite number")
    return target


def _unknown(name: str, classes: Sequence[str]) -> str:
    return f"unknown class {name!r}; the dataset's classes are {', '.join(map(repr, classes))}"


def _out_of_range(label: int, n_classes: int | None) -> str:
    return f"the class {label} is not in 0 .. {n_classes - 1}" if n_classes is not None else f"the class {label} is negative"
