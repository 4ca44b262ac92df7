"""Inputs of predictions: DataFrames, arrays, texts and bytes, checked and made into samples."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pydantic import ValidationError

from modyn_dagster.data.samples import Samples
from modyn_dagster.errors import ConfigError, WrongInput
from modyn_dagster.keys import KeyArray, keys_of
from modyn_dagster.settings import Settings
from modyn_dagster.spec.learning.parsing import TextParserSpec, TokenizerParserSpec
from modyn_dagster.spec.reading.code_packages import project_code
from modyn_dagster.spec.reading.complaints import config_error
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training.memory import Arrays
from modyn_dagster.training.models.layout import Layout
from modyn_dagster.training.module import spec_of_architecture
from modyn_dagster.training.predictor_record import DEFAULT_DTYPE, PredictorRecord

#: Keys of most requests, made once.
_POSITIONS: Final = keys_of(0, np.arange(1024))


@dataclass(frozen=True, slots=True)
class InputColumn:
    """Column that a model reads.

    Attributes:
        name: name of the column.
        dtype: dtype of its values; None for text.
        width: values per sample; above 1 for a sub-array.
        encoded: True for text that is one value of a vocabulary or a bucket.
    """

    name: str
    dtype: np.dtype[Any] | None
    width: int = 1
    encoded: bool = False


def read_architecture(record: PredictorRecord) -> tuple[TrainingSpec, Layout]:
    """Training spec and input layout of a record, whose user code comes from where specs of the project may take it.

    ``ConfigError`` where the code is missing or somebody else's, or this is no architecture. Nothing is imported.
    """
    code = project_code(Settings.from_environment().project)
    try:
        return spec_of_architecture(record.architecture, code)
    except ValidationError as error:
        raise config_error(record.name, record.architecture, error) from None
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigError(record.name, "architecture", type(error).__name__, f"is no architecture of a model: {error}") from error


def input_columns(record: PredictorRecord) -> tuple[InputColumn, ...]:
    """Columns that a model reads, in order; empty where a sample is its bytes or its text."""
    spec, layout = read_architecture(record)
    match spec.parser:
        case None:
            widths = {name: width for each in layout.inputs for name, width in each.columns}
            encoded = {each.column for each in layout.encodings}
            return tuple(InputColumn(name, _dtype_of(record, name), width, name in encoded) for name, width in widths.items())
        case TextParserSpec(text=texts):
            return tuple(InputColumn(name, None) for name in texts.columns or ())
        case TokenizerParserSpec(tokenizer=texts):
            return tuple(InputColumn(name, None) for name in texts.columns or ())
    return ()


def takes_texts(record: PredictorRecord) -> bool:
    """Tell whether a sample without columns is a UTF-8 text; otherwise it is bytes."""
    return isinstance(read_architecture(record)[0].parser, TextParserSpec | TokenizerParserSpec)


def _dtype_of(record: PredictorRecord, column: str) -> np.dtype[Any] | None:
    # A dtype of fixed rows may name a sub-array, whose shape is the column's width.
    name = record.dtypes.get(column, DEFAULT_DTYPE)
    if name == "string":
        return None
    try:
        dtype = np.dtype(name).base.newbyteorder("=")
        return None if dtype.kind in "SU" else dtype
    except (TypeError, ValueError):
        raise ConfigError(record.name, f"dtypes.{column}", name, "is no dtype of numbers") from None


class Inputs:
    """Samples of requests. Every method raises ``WrongInput`` for data that do not fit the model.

    Args:
        record: of the model.

    Attributes:
        columns: columns that the model reads, in order; empty where a sample is bytes or a text.
        are_texts: True where a sample without columns is a text.
    """

    def __init__(self, record: PredictorRecord) -> None:
        self.columns, self.are_texts = input_columns(record), takes_texts(record)
        self._name = record.name
        self._n_values = sum(column.width for column in self.columns)
        spec, layout = read_architecture(record)
        # Requests ask for the tags.
        self._tags = spec.parser.tokenizer.tags if isinstance(spec.parser, TokenizerParserSpec) else None
        # One row of float64 columns, in the order of the network.
        plain = [each for each in layout.inputs if each.tabular and each.columns and each.dtype == "float64"]
        floats = all(column.dtype == np.float64 for column in self.columns)
        self._plain = plain[0].name if floats and len(plain) == len(layout.inputs) == 1 and not layout.encodings else None

    def __call__(self, data: Any) -> Samples:
        """Make samples of a DataFrame, a mapping of columns, an array ``[n, values]``, or a sequence of texts or bytes."""
        if not self.columns:
            return self._blobs(data)
        if isinstance(data, np.ndarray) and data.dtype.names is None:
            return self._rows(data)
        named = _named(data)
        if named is None:
            found = type(data).__name__
            raise WrongInput(self._name, None, "a DataFrame, a mapping of columns, or an array", found)
        columns = {column.name: self._column(column, named) for column in self.columns}
        lengths = {name: len(array) for name, array in columns.items()}
        n = next(iter(lengths.values()))
        for name, length in lengths.items():
            if length != n:
                raise WrongInput(self._name, name, f"{n} values, as {next(iter(lengths))!r} has", str(length))
        return self._samples_of(n, columns)

    def matrix(self, data: Any) -> Arrays | None:
        """Input of the network that an array is as it stands; None where its columns have to be looked at one by one."""
        if self._plain is None or not isinstance(data, np.ndarray) or data.dtype != np.float64:
            return None
        if data.ndim != 2 or data.shape[1] != self._n_values or not len(data):
            return None
        # The predictor overwrites it.
        return {self._plain: data.copy(order="C")}

    def _rows(self, rows: npt.NDArray[Any]) -> Samples:
        """Columns in the order of the model."""
        if rows.ndim != 2 or rows.shape[1] != self._n_values:
            shown = ", ".join(column.name for column in self.columns[:6]) + (", …" if len(self.columns) > 6 else "")
            raise WrongInput(self._name, None, f"of shape [n, {self._n_values}] ({shown})", str(list(rows.shape)))
        columns, start = {}, 0
        for column in self.columns:
            part = rows[:, start] if column.width == 1 else rows[:, start : start + column.width]
            is_mixed = part.dtype == object and column.dtype is not None
            columns[column.name] = self._cast(column, self._stacked(column, part) if is_mixed else part)
            start += column.width
        return self._samples_of(len(rows), columns)

    def _samples_of(self, n: int, columns: dict[str, npt.NDArray[Any]]) -> Samples:
        missing = {} if self._tags is None else {self._tags: np.full(n, None, dtype=object)}
        return _samples(n, columns | missing)

    def _column(self, column: InputColumn, named: Mapping[str, Any]) -> npt.NDArray[Any]:
        if column.name not in named:
            raise WrongInput(self._name, column.name, "there", f"only {', '.join(map(str, named)) or 'nothing'}")
        values = named[column.name]
        array = np.asarray(values)
        if array.dtype == object and column.dtype is not None:
            array = self._stacked(column, array)
        if array.ndim == 0 or array[:1].size != column.width * len(array[:1]):
            shape = "[n]" if column.width == 1 else f"[n, {column.width}]"
            raise WrongInput(self._name, column.name, f"of shape {shape}", str(list(array.shape)))
        return self._cast(column, array)

    def _stacked(self, column: InputColumn, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
        """Numbers, some of which may be missing, or rows of numbers that a DataFrame holds as objects."""
        try:
            if column.width == 1 and column.dtype is not None and column.dtype.kind == "f":
                with suppress(pa.ArrowException):
                    return np.asarray(pa.array(values.ravel(), pa.float64(), from_pandas=True).to_numpy(zero_copy_only=False))
            return np.asarray(values.tolist())
        except ValueError:
            raise WrongInput(self._name, column.name, f"rows of {column.width} numbers", "rows of several lengths") from None

    def _cast(self, column: InputColumn, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if column.dtype is None:
            return self._texts(column, array)
        if array.dtype == column.dtype:
            return array
        if array.dtype.kind not in "biuf":
            raise WrongInput(self._name, column.name, f"numbers ({column.dtype})", str(array.dtype))
        with np.errstate(invalid="ignore", over="ignore"):
            cast = array.astype(column.dtype)
        if column.dtype.kind in "biu" and not np.array_equal(cast, array):
            raise WrongInput(self._name, column.name, f"{column.dtype}, as in the dataset", f"{array.dtype} that it cannot hold")
        return cast

    def _texts(self, column: InputColumn, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
        if column.encoded and array.dtype.kind == "f" and np.isnan(array).all():
            # A DataFrame holds a column of which everything is missing as numbers.
            return np.full(len(array), None, dtype=object)
        if array.dtype.kind not in "OUT":
            raise WrongInput(self._name, column.name, "texts", str(array.dtype))
        texts = array.astype(object)
        if column.encoded:
            try:
                pa.array(texts, pa.large_string(), from_pandas=True)
            except pa.ArrowException as error:
                raise WrongInput(self._name, column.name, "texts", f"other values: {error}") from error
        return texts

    def _blobs(self, data: Any) -> Samples:
        listed = _listed(data)
        kind = "texts" if self.are_texts else "bytes"
        if listed is None:
            raise WrongInput(
                self._name, None, f"{kind}, a sequence of them, or a DataFrame with one column of them", type(data).__name__
            )
        blobs = []
        for position, sample in enumerate(listed):
            if isinstance(sample, str) and self.are_texts:
                blobs.append(sample.encode())
            elif isinstance(sample, bytes | bytearray | memoryview):
                blobs.append(bytes(sample))
            else:
                raise WrongInput(self._name, None, kind, f"{type(sample).__name__} at position {position}")
        return _samples(len(blobs), {}, blobs)


def positions(n: int) -> KeyArray:
    """Keys of the samples of a request: their positions."""
    return _POSITIONS[:n] if n <= len(_POSITIONS) else keys_of(0, np.arange(n))


def _samples(n: int, columns: Mapping[str, npt.NDArray[Any]], blobs: Sequence[bytes] | None = None) -> Samples:
    """Samples without labels; their keys are their positions."""
    return Samples(positions(n), np.zeros(n, "datetime64[us]"), None, None, columns, blobs)


def _named(data: Any) -> Mapping[str, Any] | None:
    """Columns by name; None for data without names."""
    if isinstance(data, Mapping):
        return data
    if isinstance(data, np.ndarray):
        return {name: data[name] for name in data.dtype.names or ()}
    if _is_frame(data):
        return {str(name): data[name].to_numpy() for name in data.columns}
    return None


def _listed(data: Any) -> Sequence[Any] | None:
    """Samples one by one; None for anything that is no sequence of them."""
    if isinstance(data, str | bytes | bytearray | memoryview):
        return [data]
    if isinstance(data, Mapping):
        return _listed(next(iter(data.values()))) if len(data) == 1 else None
    if _is_frame(data):
        return list(data.iloc[:, 0]) if data.shape[1] == 1 else None
    if isinstance(data, np.ndarray):
        return list(data) if data.ndim == 1 else None
    return data if isinstance(data, Sequence) else None


def _is_frame(data: Any) -> bool:
    return hasattr(data, "columns") and hasattr(data, "iloc")
