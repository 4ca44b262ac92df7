"""Specs of datasets: source of the batches, format of the samples, times, labels and split."""

from typing import Annotated, Any, Self

import numpy as np
from pydantic import BeforeValidator, Field, PositiveInt, ValidationError, model_validator

from modyn_dagster.spec.base import Duration, Name, Owner, Spec
from modyn_dagster.spec.formats import AbsentRule, CsvFormat, FilesFormat, FixedRowsFormat, Format, JsonlFormat, ParquetFormat
from modyn_dagster.spec.sources import (
    Batches,
    ColumnId,
    ColumnLabel,
    ColumnsId,
    ColumnTime,
    DirectoryBatches,
    FileBatches,
    FileId,
    FileNameTime,
    FolderLabel,
    LabelFiles,
    LabelSpec,
    ManifestBatches,
    ManifestTime,
    ModifiedTime,
    NoLabelSpec,
    SampleId,
    SidecarLabel,
    Time,
    without_no_label,
)

__all__ = [
    "AbsentRule",
    "Batches",
    "ColumnId",
    "ColumnLabel",
    "ColumnTime",
    "ColumnsId",
    "CsvFormat",
    "DatasetSpec",
    "DirectoryBatches",
    "FileBatches",
    "FileId",
    "FileNameTime",
    "FilesFormat",
    "FixedRowsFormat",
    "FolderLabel",
    "Format",
    "FreshnessSpec",
    "JsonlFormat",
    "LabelFiles",
    "LabelSpec",
    "ManifestBatches",
    "ManifestTime",
    "ModifiedTime",
    "ParquetFormat",
    "SampleId",
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
    id: SampleId | None = Field(
        None, exclude_if=lambda id: id is None, description="Unique id of a sample, by which labels that arrive later name it."
    )
    label: Annotated[
        LabelSpec | None, BeforeValidator(without_no_label, json_schema_input_type=LabelSpec | NoLabelSpec | None)
    ] = Field(None, description="The label to learn; `{kind: none}`, or leaving it out: there is none.")
    attributes: list[str] = Field([], description="Columns kept in Postgres for selection; not features by default.")
    absent: dict[str, AbsentRule] = Field({}, description="Columns that files may lack, with their value there.")
    split: Split = Split()
    sensor_interval: PositiveInt = Field(30, description="Seconds between two looks for new batches.")
    freshness: FreshnessSpec | None = Field(None, description="Default: no check of how old the newest batch is.")

    @model_validator(mode="after")
    def _parts_fit(self) -> Self:
        files = self.format.kind == "files"
        if not files and self.label is not None and self.label.from_.source not in ("column", "label_files"):
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
        self._require_id(files)
        if files and self.attributes:
            raise ValueError("format `files` has no columns to keep as attributes")
        if isinstance(self.format, FixedRowsFormat):
            self._require_fields([name for name, _ in self.format.dtype])
        for name, rule in self.absent.items():
            self._require_fillable(name, rule)
        return self

    @property
    def has_label_files(self) -> bool:
        """Labels come in files of their own, after the samples."""
        return self.label is not None and self.label.files is not None

    @property
    def id_columns(self) -> list[str]:
        """Columns of the samples that make up their id."""
        if isinstance(self.id, ColumnId):
            return [self.id.column]
        return list(self.id.columns) if isinstance(self.id, ColumnsId) else []

    def label_rows(self) -> "DatasetSpec":
        """The label files as a dataset whose samples are labels: its times are those at which the labels were known."""
        assert self.label is not None and self.label.files is not None  # noqa: S101 - asked for by those who have such files
        files = self.label.files
        columns = files.id or self.id_columns or ["id"]
        one = {"source": "column", "column": columns[0]}
        content: dict[str, Any] = {
            "name": self.name,
            "root": files.root,
            "storage_options": self.storage_options,
            "format": files.format,
            "batches": files.batches,
            "time": files.known_at,
            "id": one if len(columns) == 1 else {"source": "columns", "columns": columns},
            "label": {
                "kind": self.label.kind,
                "classes": self.label.classes,
                "n_classes": self.label.n_classes,
                "from": {"source": "column", "column": files.column},
            },
        }
        return DatasetSpec.model_validate(content)

    def _require_id(self, files: bool) -> None:
        """Refuse an id that samples of this format cannot have, and labels that arrive later for samples without one."""
        if self.has_label_files and self.id is None:
            raise ValueError("labels that arrive later name samples by their id: give `id`, such as {source: column, column: id}")
        if self.id is not None and files != isinstance(self.id, FileId):
            raise ValueError(f"id.source {self.id.source!r} does not fit: rows have column or columns, files file_name or path")
        if self.label is not None and self.label.files is not None:
            given, needed = self.label.files.id, max(1, len(self.id_columns))
            if given is not None and len(given) != needed:
                raise ValueError(f"label.files.id names {len(given)} columns, `id` of the samples {needed}")
            try:
                self.label_rows()
            except ValidationError as error:
                problems = "; ".join(str(found["msg"]).removeprefix("Value error, ") for found in error.errors())
                raise ValueError(f"label.files: {problems}") from error

    def _require_fillable(self, name: str, rule: AbsentRule) -> None:
        """Refuse a rule for a column that every sample needs, and a value that the column cannot hold."""
        where = f"absent.{name}"
        if isinstance(self.format, FilesFormat):
            raise ValueError(f"{where}: format `files` has no columns")
        needed = [self.time.column] if isinstance(self.time, ColumnTime) else []
        if self.label is not None and isinstance(self.label.from_, ColumnLabel):
            needed.append(self.label.from_.column)
        if name in [*needed, *self.id_columns]:
            raise ValueError(f"{where}: every sample needs its time{', its id' if self.id else ''} and its label")
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
        roles += [("id", name) for name in self.id_columns]
        for role, name in roles:
            if name not in fields:
                raise ValueError(f"{role}: {name!r} is not a field of format.dtype: {', '.join(fields)}")
