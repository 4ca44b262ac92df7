"""What a project hands over is impossible: a spec, an option, user code, a batch of data."""

from modyn_dagster.errors.base import ModynError


class ConfigError(ModynError):
    """A value of a spec, an option or a setting is impossible.

    ``source`` is the file or object it stands in, ``field`` the dotted path inside it.
    """

    def __init__(self, source: str, field: str, value: object, rule: str) -> None:
        super().__init__(f"{source}: {field}: {rule} (found {value!r})")
        self.source, self.field, self.value, self.rule = source, field, value, rule


class ImportPathError(ConfigError):
    """User code named by an import path cannot be imported or is not callable."""


class MissingExtra(ConfigError):
    """A spec asks for a library that is installed only with an extra of this package."""

    def __init__(self, source: str, field: str, value: object, *, package: str, extra: str) -> None:
        rule = f"needs {package}, which is not installed; run `pip install 'modyn-dagster[{extra}]'`"
        super().__init__(source, field, value, rule)
        self.package, self.extra = package, extra


class DataError(ModynError):
    """A batch cannot be ingested. ``row`` counts data rows from 1, ``column`` is its name."""

    def __init__(self, file: str, message: str, *, row: int | None = None, column: str | None = None) -> None:
        place = file
        place += f", row {row}" if row is not None else ""
        place += f", column {column!r}" if column is not None else ""
        super().__init__(f"{place}: {message}")
        self.file, self.row, self.column, self.message = file, row, column, message


class DuplicateFile(DataError):
    """A path belongs to one batch only."""

    def __init__(self, file: str, batch: str) -> None:
        super().__init__(file, f"duplicate file, it already belongs to batch {batch!r}")
        self.batch = batch


class SchemaMismatch(DataError):
    """Columns or dtypes differ from the dataset's; both are named."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(file, f"columns differ from the dataset's: expected {expected}, found {found}")
        self.expected, self.found = expected, found


class ChangedBatch(DataError):
    """An ingested batch is immutable; corrected content comes as a new batch."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            file,
            f"the content changed after it was ingested (checksum {expected}, now {found}); "
            "restore it, or deliver the corrected content as a new file",
        )
        self.expected, self.found = expected, found
