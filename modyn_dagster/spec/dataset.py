"""Specs of datasets: source of the batches, format of the samples, times, labels and split."""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Name, Owner, Spec
from modyn_dagster.spec.formats import AbsentRule, CsvFormat, FilesFormat, FixedRowsFormat, Format, JsonlFormat, ParquetFormat
from modyn_dagster.spec.sources import (
    Batches,
    ColumnLabel,
    ColumnTime,
    DirectoryBatches,
    FileBatches,
    FileNameTime,
    FolderLabel,
    LabelSpec,
    ManifestBatches,
    ManifestTime,
    ModifiedTime,
    SidecarLabel,
    Time,
)

__all__ = [
    "AbsentRule",
    "Batches",
    "ColumnLabel",
    "ColumnTime",
    "CsvFormat",
    "DatasetSpec",
    "DirectoryBatches",
    "FileBatches",
    "FileNameTime",
    "FilesFormat",
    "FixedRowsFormat",
    "FolderLabel",
    "Format",
    "FreshnessSpec",
    "JsonlFormat",
    "LabelSpec",
    "ManifestBatches",
    "ManifestTime",
    "ModifiedTime",
    "ParquetFormat",
    "SidecarLabel",
    "Split",
    "Time",
]


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
    """Age of the newest batch at which the check ``fresh`` of the samples fails."""

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
    absent: dict[str, AbsentRule] = Field({}, description="Columns that files may lack, with their value there.")
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
        for name, rule in self.absent.items():
            self._require_fillable(name, rule)
        return self

    def _require_fillable(self, name: str, rule: AbsentRule) -> None:
        """Refuse a rule for a column that every sample needs, and a value that the column cannot hold."""
        where = f"absent.{name}"
        if isinstance(self.format, FilesFormat):
            raise ValueError(f"{where}: format `files` has no columns")
        needed = [self.time.column] if isinstance(self.time, ColumnTime) else []
        if self.label is not None and isinstance(self.label.from_, ColumnLabel):
            needed.append(self.label.from_.column)
        if name in needed:
            raise ValueError(f"{where}: every sample needs its time and its label")
        try:
            if isinstance(self.format, FixedRowsFormat):
                self._require_field_rule(name, rule, self.format)
                return
            pinned = None if isinstance(self.format, ParquetFormat) else self.format.columns.get(name)
            if pinned is not None and rule.dtype not in (None, pinned):
                raise ValueError(f"has dtype {rule.dtype}, `format.columns` has {pinned}")
            dtype = pinned or rule.dtype
            if dtype is not None:
                rule.value_as(dtype)
        except ValueError as error:
            raise ValueError(f"{where}.fill: {rule.fill!r} {error}") from error

    @staticmethod
    def _require_field_rule(name: str, rule: AbsentRule, format: FixedRowsFormat) -> None:
        fields = dict(format.dtype)
        if name not in fields:
            raise ValueError(f"has no field of this name in format.dtype: {', '.join(fields)}")
        if rule.dtype is not None:
            raise ValueError("has a dtype, which stands in format.dtype alone")
        rule.filled_field(np.dtype([(name, fields[name])])[0])

    def _require_fields(self, fields: list[str]) -> None:
        """Refuse roles for unknown fields: the columns of fixed rows are known before any file is read."""
        roles = [(f"attributes.{i}", name) for i, name in enumerate(self.attributes)]
        if isinstance(self.time, ColumnTime):
            roles.append(("time.column", self.time.column))
        if self.label is not None and isinstance(self.label.from_, ColumnLabel):
            roles.append(("label.from.column", self.label.from_.column))
        for role, name in roles:
            if name not in fields:
                raise ValueError(f"{role}: {name!r} is not a field of format.dtype: {', '.join(fields)}")
