"""Errors of what a project supplies: specs, options, user code and data; and the removal of secrets from messages."""

import re
import traceback
from collections.abc import Iterable
from typing import Final

from fastpath.errors import Error as ModynError

_USER: Final = re.compile(r"(?<=://)[^/\s]*@")
#: Characters of an error that is shown as one line.
_LONGEST_LINE: Final = 1_000
_QUERY: Final = re.compile(r"(?<=\S)\?\S+")


def without_secrets(text: str, secrets: Iterable[str] = ()) -> str:
    """Remove user, password and query from the URLs in a text, and replace the given secrets.

    >>> without_secrets("sftp://ann:pass@host/models?token=1")
    'sftp://host/models'
    """
    for secret in secrets:
        text = text.replace(secret, "***")
    return _QUERY.sub("", _USER.sub("", text))


def shortened(text: str, most: int) -> str:
    """A text of about ``most`` characters at most: of a longer one the middle is missing.

    >>> shortened("0123456789", 4)
    '01 … 89'
    """
    return text if len(text) <= most else f"{text[: most // 2]} … {text[-(most // 2) :]}"


def one_line(error: BaseException) -> str:
    """Message of an error as one line, without secrets; an error that is not of this tree is named by its class too.

    >>> one_line(ZeroDivisionError("division by zero")), one_line(ModynError("a file is missing"))
    ('ZeroDivisionError: division by zero', 'a file is missing')
    """
    lines = (line.strip() for line in without_secrets(str(error)).splitlines())
    text = shortened(next((line for line in lines if line), ""), _LONGEST_LINE)
    return text if isinstance(error, ModynError) and text else f"{type(error).__name__}: {text}".removesuffix(": ")


class ConfigError(ModynError):
    """Impossible value of a spec, an option or a setting.

    ``source`` is the file or object with the value, ``field`` the dotted path inside it.
    """

    def __init__(self, source: str, field: str, value: object, rule: str) -> None:
        super().__init__(f"{source}: {field}: {rule} (found {value!r})")
        self.source, self.field, self.value, self.rule = source, field, value, rule


class NotJson(ConfigError, TypeError, ValueError):
    """Value that JSON would return changed, or cannot hold."""


class ImportPathError(ConfigError):
    """Import path of user code that cannot be imported or is not callable."""


class MissingExtra(ConfigError):
    """Spec that needs a library which only an extra of this package installs."""

    def __init__(self, source: str, field: str, value: object, *, package: str, extra: str) -> None:
        rule = f"needs {package}, which is not installed; run `pip install 'modyn-dagster[{extra}]'`"
        super().__init__(source, field, value, rule)
        self.package, self.extra = package, extra


class MissingPackage(ModynError, ModuleNotFoundError):
    """Part of this package that needs a library which only an extra installs."""

    def __init__(self, subject: str, *, package: str, extra: str) -> None:
        super().__init__(f"{subject} needs {package}, which is not installed; run `pip install 'modyn-dagster[{extra}]'`")
        self.name, self.package, self.extra = package, package, extra


class DataError(ModynError):
    """Batch that cannot be ingested. ``row`` counts data rows from 1, ``column`` is a name."""

    def __init__(self, file: str, message: str, *, row: int | None = None, column: str | None = None) -> None:
        place = file
        place += f", row {row}" if row is not None else ""
        place += f", column {column!r}" if column is not None else ""
        super().__init__(f"{place}: {message}")
        self.file, self.row, self.column, self.message = file, row, column, message


class DuplicateFile(DataError):
    """File that already belongs to another batch."""

    def __init__(self, file: str, batch: str) -> None:
        super().__init__(file, f"duplicate file, it already belongs to batch {batch!r}")
        self.batch = batch


class SchemaMismatch(DataError):
    """Columns or dtypes that differ from the dataset's; the message names both."""

    def __init__(self, file: str, expected: str, found: str, remedy: str = "") -> None:
        super().__init__(file, f"columns differ from the dataset's: expected {expected}, found {found}{remedy and f'; {remedy}'}")
        self.expected, self.found = expected, found


class UnexpectedFault(DataError):
    """Exception that nobody foresaw, from reading a file or storing its samples.

    ``kind`` is the name of its class, ``traceback`` the text that Python would print, shortened in the middle.
    """

    def __init__(self, file: str, error: BaseException) -> None:
        self.kind, self.traceback = type(error).__name__, shortened("".join(traceback.format_exception(error)), 20_000)
        what = f"{self.kind}: {error}" if str(error) else self.kind
        super().__init__(
            file,
            f"met an error that modyn-dagster does not foresee ({shortened(what, 500)}); "
            "`modyn-dagster dataset status --traceback` shows where; please report it, and deliver the batch again after the fix",
        )


class ChangedBatch(DataError):
    """Changed file of an ingested batch. Batches are immutable: corrected content is delivered as a new batch."""

    def __init__(self, file: str, expected: str, found: str) -> None:
        super().__init__(
            file,
            f"the content changed after it was ingested (checksum {expected}, now {found}); "
            "restore it, or deliver the corrected content as a new file",
        )
        self.expected, self.found = expected, found
