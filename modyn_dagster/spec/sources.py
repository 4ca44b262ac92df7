"""Specs of sources: the files of a batch, and the places of sample times, labels and ids."""

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, PositiveInt, model_validator

from modyn_dagster.spec.base import Duration, Spec
from modyn_dagster.spec.formats import CsvFormat, FixedRowsFormat, JsonlFormat, ParquetFormat


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


class LaterLabel(Spec):
    """No label in the samples' own files: all come in the files of ``label.files``."""

    source: Literal["label_files"] = "label_files"


class ColumnId(Spec):
    """A sample's id is the value of a column: integers or text."""

    source: Literal["column"]
    column: str


class ColumnsId(Spec):
    """A sample's id is the values of several columns together."""

    source: Literal["columns"]
    columns: list[str] = Field(min_length=2)


class FileId(Spec):
    """A sample that is a file has its name, with suffix, as its id, or its path below the root."""

    source: Literal["file_name", "path"]


SampleId = Annotated[ColumnId | ColumnsId | FileId, Field(discriminator="source")]


class LabelFiles(Spec):
    """Files of labels that arrive later: rows with the id of a sample, its label, and the time at which that was known."""

    root: str = Field(description="Local folder (relative to the folder of datasets/) or fsspec URL.")
    format: Annotated[CsvFormat | JsonlFormat | ParquetFormat | FixedRowsFormat, Field(discriminator="kind")]
    batches: Batches = FileBatches()
    id: list[str] | None = Field(
        None, min_length=1, description="Columns with the id; default: those of the samples, `id` for samples that are files."
    )
    column: str = Field("label", description="Column of the label.")
    known_at: Time = ColumnTime(source="column", column="known_at")


class DefaultLabel(Spec):
    """Label of a sample that still has none when the stream is some time older than it; a label that arrives replaces it."""

    label: int | float | str = Field(description="A number of a class below `n_classes`, a name of `classes`, or a target.")
    after: Duration = Field(description="Age of the sample: the time from it to the newest sample of the stream.")

    def value(self, kind: Literal["class", "target"], classes: list[str] | None) -> int | float:
        """The label as it is stored: the number of a class, or a target.

        >>> DefaultLabel(label="no", after="30d").value("class", ["yes", "no"])
        1
        """
        if isinstance(self.label, str):
            return (classes or []).index(self.label)
        return int(self.label) if kind == "class" else float(self.label)


class NoLabelSpec(Spec):
    """No label: for autoencoding, contrastive learning and language modelling."""

    kind: Literal["none"]


def without_no_label(content: object) -> object:
    """Read ``{kind: none}`` as no label at all; other content stays, for validation."""
    if isinstance(content, Mapping) and content.get("kind") == "none":
        NoLabelSpec.model_validate(content)
        return None
    return content


class LabelSpec(Spec):
    """The label to learn: a class (integer or string) or a regression target (float)."""

    kind: Literal["class", "target"] = "class"
    classes: list[str] | None = Field(
        None, description="String classes allowed, in the order of their index; default: any, numbered as they come."
    )
    n_classes: PositiveInt | None = Field(None, description="Integer classes are 0 .. n_classes - 1; default: any >= 0.")
    from_: Annotated[ColumnLabel | SidecarLabel | FolderLabel | LaterLabel, Field(discriminator="source")] = Field(
        LaterLabel(), alias="from", description="Required, unless labels arrive later."
    )
    arrives: Literal["with_sample", "later"] = Field(
        "with_sample",
        exclude_if=lambda moment: moment == "with_sample",
        description="`later`: labels come in files of their own, may be corrected, and a sample may have none.",
    )
    files: LabelFiles | None = Field(None, exclude_if=lambda files: files is None, description="Labels that arrive later.")
    default_after: DefaultLabel | None = Field(
        None,
        exclude_if=lambda default: default is None,
        description="Label of samples that have had none for so long, such as clicks after which nobody bought.",
    )

    @model_validator(mode="after")
    def _classes_are_for_classes(self) -> Self:
        if self.kind == "target" and (self.classes is not None or self.n_classes is not None):
            raise ValueError("classes and n_classes belong to kind `class`")
        if self.classes is not None and self.n_classes is not None:
            raise ValueError("give classes (strings) or n_classes (integers), not both")
        return self

    @model_validator(mode="after")
    def _labels_come_from_one_place(self) -> Self:
        elsewhere = isinstance(self.from_, LaterLabel)
        if self.arrives == "with_sample":
            if self.files is not None:
                raise ValueError("`files` holds labels that come after their samples: add `arrives: later`, or remove it")
            if elsewhere:
                raise ValueError("`from` is missing: the place of the labels")
        elif elsewhere and self.files is None:
            raise ValueError("labels that arrive later need `files`, the files in which they come")
        elif not elsewhere and self.from_.source != "column":
            raise ValueError("with `arrives: later`, labels that are known at once come from a column of the samples")
        return self

    @model_validator(mode="after")
    def _default_is_a_label(self) -> Self:
        if self.default_after is None:
            return self
        label = self.default_after.label
        if self.arrives == "with_sample":
            raise ValueError("`default_after` is for labels that come after their samples: add `arrives: later`, or remove it")
        if self.kind == "target":
            if isinstance(label, str):
                raise ValueError(f"default_after.label must be a number, as targets are, not {label!r}")
        elif self.classes is not None:
            if label not in self.classes:
                raise ValueError(f"default_after.label must be one of classes ({', '.join(self.classes)}), not {label!r}")
        elif self.n_classes is None:
            raise ValueError(
                "`default_after` needs `n_classes` or `classes`, so that its label has one number from the beginning"
            )
        elif not isinstance(label, int) or not 0 <= label < self.n_classes:
            raise ValueError(f"default_after.label must be a class, 0 to {self.n_classes - 1}, not {label!r}")
        return self
