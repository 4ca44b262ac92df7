"""A dataset: where batches come from, what a sample is, and on which side of the split it falls."""

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

import numpy as np
from pydantic import AfterValidator, Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Name, Owner, Spec

ColumnType = Literal["int64", "float64", "bool", "string"]


def _check_delimiter(delimiter: str) -> str:
    if not delimiter.isascii() or delimiter in '"\r\n':
        raise ValueError("must be one ASCII character, not a quote or a line break")
    return delimiter


def _check_glob(pattern: str) -> str:
    pure = PurePosixPath(pattern)
    if not pattern or pure.is_absolute() or ".." in pure.parts:
        raise ValueError("must be a glob below the root: relative, without `..`")
    return pattern


def _check_time_pattern(pattern: str) -> str:
    try:
        groups = re.compile(pattern).groupindex
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from error
    if "time" not in groups:
        raise ValueError("must have a group named `time`: (?P<time>...)")
    return pattern


#: A glob below the dataset's root.
Glob = Annotated[str, AfterValidator(_check_glob)]
#: The name of one file, no path.
FileName = Annotated[str, Field(pattern=r"^[^/]+$")]
#: The end of a file's name, with its dot.
Suffix = Annotated[str, Field(pattern=r"^\.[^/]+$")]


class CsvFormat(Spec):
    """Comma-separated rows (RFC 4180), UTF-8, one header line."""

    kind: Literal["csv"]
    delimiter: Annotated[str, Field(min_length=1, max_length=1), AfterValidator(_check_delimiter)] = ","
    columns: dict[str, ColumnType] = Field({}, description="Dtypes to pin; others are found in the first batch.")


class JsonlFormat(Spec):
    """One flat JSON object per line, UTF-8."""

    kind: Literal["jsonl"]
    columns: dict[str, ColumnType] = Field({}, description="Dtypes to pin; others are found in the first batch.")


class ParquetFormat(Spec):
    """Parquet with flat columns; converted once into fixed-width rows of a local shard."""

    kind: Literal["parquet"]


def _check_dtype(fields: list[tuple[str, str]]) -> list[tuple[str, str]]:
    try:
        dtype = np.dtype([(name, code) for name, code in fields])
    except (TypeError, ValueError) as error:
        raise ValueError(f"must be NumPy fields [[name, dtype], ...]: {error}") from error
    if dtype.hasobject or dtype.itemsize == 0:
        raise ValueError("must have fixed-width fields, not objects")
    return fields


class FixedRowsFormat(Spec):
    """Binary records of a NumPy structured dtype, one after the other."""

    kind: Literal["fixed_rows"]
    dtype: Annotated[list[tuple[str, str]], AfterValidator(_check_dtype)] = Field(
        description="Fields in file order: [[name, NumPy dtype string], ...].", min_length=1
    )
    header_bytes: Annotated[int, Field(ge=0)] = 0


class FilesFormat(Spec):
    """One file per sample; its bytes are the sample."""

    kind: Literal["files"]
    suffixes: list[str] = Field(description="File names that are samples, for example ['.png'].", min_length=1)
    packed_bytes: Annotated[int, Field(ge=0)] = Field(
        1 << 20,
        description="Files up to this size are packed into a shard and not needed afterwards; larger ones of a local root stay "
        "where they are. 0 packs no local file.",
    )


Format = Annotated[CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat | FilesFormat, Field(discriminator="kind")]


class FileBatches(Spec):
    """One file is one batch; its partition key is its path without suffix."""

    kind: Literal["file"] = "file"
    pattern: Glob = Field("*", description="Glob under the root.")
    quiet_seconds: Annotated[float, Field(ge=0)] = Field(
        1.0, description="A file written within the last seconds is left for the next look, like one that two looks saw differ."
    )


class DirectoryBatches(Spec):
    """One directory is one batch once its ready file appears."""

    kind: Literal["directory"]
    ready: FileName = "_READY"


class ManifestBatches(Spec):
    """One manifest is one batch: a CSV with a column ``file`` (paths under the root), ready once ``<manifest>_READY`` appears."""

    kind: Literal["manifest"]
    pattern: Glob = "*.manifest.csv"


Batches = Annotated[FileBatches | DirectoryBatches | ManifestBatches, Field(discriminator="kind")]


class ColumnTime(Spec):
    """Sample time from a column: ISO 8601 text, a ``format`` of ``strptime``, or a number of ``unit`` since 1970."""

    source: Literal["column"]
    column: str
    format: str | None = None
    unit: Literal["s", "ms", "us"] = "s"


class ManifestTime(Spec):
    """Sample time from a column of the manifest."""

    source: Literal["manifest"]
    column: str = "time"
    format: str | None = None
    unit: Literal["s", "ms", "us"] = "s"


class FileNameTime(Spec):
    """Sample time from the file name: the group ``time`` of ``pattern``, read with ``format``."""

    source: Literal["file_name"]
    pattern: Annotated[str, AfterValidator(_check_time_pattern)] = Field(examples=[r"season_(?P<time>\d{4})\.csv"])
    format: str = Field(examples=["%Y"])


class ModifiedTime(Spec):
    """Sample time is the file's modification time."""

    source: Literal["mtime"]


Time = Annotated[ColumnTime | ManifestTime | FileNameTime | ModifiedTime, Field(discriminator="source")]


class ColumnLabel(Spec):
    """Labels from a column of the rows, or of the manifest where samples are files."""

    source: Literal["column", "manifest"]
    column: str = "label"


class SidecarLabel(Spec):
    """Labels from a text file beside each sample: same name, this suffix."""

    source: Literal["sidecar"]
    suffix: Suffix = ".label"


class FolderLabel(Spec):
    """The name of the folder a sample's file lies in."""

    source: Literal["folder"]


class LabelSpec(Spec):
    """What is learnt: a class (integer or string) or a regression target (float)."""

    kind: Literal["class", "target"] = "class"
    classes: list[str] | None = Field(
        None, description="String classes allowed, in the order of their index; default: any, numbered as they come."
    )
    n_classes: PositiveInt | None = Field(None, description="Integer classes are 0 .. n_classes - 1; default: any >= 0.")
    from_: Annotated[ColumnLabel | SidecarLabel | FolderLabel, Field(discriminator="source")] = Field(alias="from")

    @model_validator(mode="after")
    def _classes_are_for_classes(self) -> Self:
        if self.kind == "target" and (self.classes is not None or self.n_classes is not None):
            raise ValueError("classes and n_classes belong to kind `class`")
        if self.classes is not None and self.n_classes is not None:
            raise ValueError("give classes (strings) or n_classes (integers), not both")
        return self


class Split(Spec):
    """Shares of a salted stable hash of the key; fixed once data are ingested."""

    train: Annotated[float, Field(gt=0, le=1)] = 1.0
    calibrate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    evaluate: Annotated[float, Field(ge=0, lt=1)] = 0.0
    salt: int = 0

    @model_validator(mode="after")
    def _shares_add_up(self) -> Self:
        total = self.train + self.calibrate + self.evaluate
        if abs(total - 1) > 1e-9:
            raise ValueError(f"train + calibrate + evaluate must be 1, not {total:g}")
        return self


class FreshnessSpec(Spec):
    """When to say that there are no data: the check ``fresh`` of the samples fails then."""

    maximum: Duration = Field(description="Longest time, by the wall clock, since the newest ingested batch arrived.")


class DatasetSpec(Spec):
    """One file of ``datasets/``."""

    name: Name
    description: str = ""
    owners: list[Owner] = Field([], description="`team:name` or an e-mail address, shown by Dagster.")
    root: str = Field(description="Local folder (relative to the folder of datasets/) or fsspec URL.")
    storage_options: dict[str, Any] = Field({}, description="Passed to fsspec for a URL; name secrets by environment, not here.")
    format: Format
    batches: Batches = FileBatches()
    time: Time
    label: LabelSpec | None = None
    attributes: list[str] = Field([], description="Columns kept in Postgres for selection; not features by default.")
    split: Split = Split()
    sensor_interval: PositiveInt = Field(30, description="Seconds between two looks for new batches.")
    freshness: FreshnessSpec | None = Field(None, description="Default: no check of how old the newest batch is.")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        files = self.format.kind == "files"
        if not files and self.label is not None and self.label.from_.source != "column":
            raise ValueError(f"label.from.source {self.label.from_.source!r} needs format `files`; rows have `column`")
        if files and self.label is not None and self.label.from_.source == "column":
            raise ValueError("format `files` has no columns: label.from.source must be manifest, sidecar or folder")
        if files and self.time.source == "column":
            raise ValueError("format `files` has no columns: time.source must be manifest, file_name or mtime")
        if files and self.batches.kind == "file":
            raise ValueError("format `files` needs batches of kind directory or manifest: one file is one sample")
        manifest = self.time.source == "manifest" or (self.label is not None and self.label.from_.source == "manifest")
        if manifest and self.batches.kind != "manifest":
            raise ValueError("time or label from a manifest needs batches of kind manifest")
        if files and self.attributes:
            raise ValueError("format `files` has no columns to keep as attributes")
        if isinstance(self.format, FixedRowsFormat):
            self._require_fields([name for name, _ in self.format.dtype])
        return self

    def _require_fields(self, fields: list[str]) -> None:
        """Columns of fixed rows are known beforehand, so a role for a field that is not there is refused here."""
        roles = [(f"attributes.{i}", name) for i, name in enumerate(self.attributes)]
        if isinstance(self.time, ColumnTime):
            roles.append(("time.column", self.time.column))
        if self.label is not None and isinstance(self.label.from_, ColumnLabel):
            roles.append(("label.from.column", self.label.from_.column))
        for role, name in roles:
            if name not in fields:
                raise ValueError(f"{role}: {name!r} is not a field of format.dtype: {', '.join(fields)}")
