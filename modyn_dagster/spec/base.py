"""Base of all specs (frozen, unknown fields refused), and types of durations, names and import paths."""

import re
from datetime import UTC, date, datetime, time
from typing import Annotated, Final

import numpy as np
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints, ValidationInfo

from modyn_dagster.imports import STANDARD, CodeSources, is_standard, module_exists

_UNITS: Final = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400, "y": 365 * 86_400}
_DURATION: Final = re.compile(r"([1-9][0-9]*)([smhdwy])")
_IMPORT_PATH: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*")
#: Libraries of estimators, each of which an extra of this name installs.
_EXTRAS: Final = frozenset({"river", "sklearn"})
_OWNER: Final = re.compile(r"team:.+|[^@\s]+@[^@\s]+\.[^@\s]+")


class Spec(BaseModel):
    """A frozen part of a dataset or pipeline; a field it does not know is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


def seconds_of(duration: str) -> int:
    """Seconds of ``30s 5m 2h 1d 1w 1y`` (a year is 365 days).

    >>> seconds_of("20y") // 86_400
    7300
    """
    match = _DURATION.fullmatch(duration)
    if match is None:
        raise ValueError("must be a whole number and a unit: 30s, 5m, 2h, 1d, 1w or 1y")
    return int(match[1]) * _UNITS[match[2]]


def timedelta_of(duration: str) -> np.timedelta64:
    """A duration as ``timedelta64[us]``, the resolution of sample times."""
    return np.timedelta64(seconds_of(duration) * 1_000_000, "us")


def as_time(moment: datetime | date) -> np.datetime64:
    """A moment of a spec as ``datetime64[us]`` in UTC. Without a zone it counts as UTC; a date is its midnight."""
    full = moment if isinstance(moment, datetime) else datetime.combine(moment, time())
    if full.tzinfo is not None:
        full = full.astimezone(UTC).replace(tzinfo=None)
    return np.datetime64(full, "us")


def _check_duration(text: str) -> str:
    seconds_of(text)
    return text


def check_import_path(path: str, info: ValidationInfo) -> str:
    """Check the syntax, that the module exists, and that the project in the context may use it. Nothing is imported."""
    if not _IMPORT_PATH.fullmatch(path):
        raise ValueError("must be an import path `package.module:function`")
    require_module(path.partition(":")[0], info)
    return path


def require_module(module: str, info: ValidationInfo) -> None:
    """Raise ``ValueError`` for a module that does not exist, or that specs of the project in the context may not name."""
    if is_standard(module):
        raise ValueError(STANDARD)
    if not module_exists(module):
        if (package := module.partition(".")[0]) in _EXTRAS:
            raise ValueError(f"needs {package}, which is not installed; run `pip install 'modyn-dagster[{package}]'`")
        raise ValueError(f"module {module!r} does not exist on the Python path: put it into the project's folder code/")
    refusal = info.context.refusal(module) if isinstance(info.context, CodeSources) else None
    if refusal is not None:
        raise ValueError(refusal)


def _check_owner(owner: str) -> str:
    if not _OWNER.fullmatch(owner):
        raise ValueError("must be `team:name` or an e-mail address")
    return owner


Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_]+$", min_length=1, max_length=100)]
Fraction = Annotated[float, Field(gt=0, lt=1)]
Duration = Annotated[str, AfterValidator(_check_duration), Field(examples=["30s", "10y"])]
ImportPath = Annotated[str, AfterValidator(check_import_path), Field(examples=["package.module:function"])]
Owner = Annotated[str, AfterValidator(_check_owner), Field(examples=["team:data", "name@example.org"])]
TagName = Annotated[str, StringConstraints(pattern=r"^([A-Za-z0-9_.-]{1,63}/)?[A-Za-z0-9_.-]{1,63}$")]
TagValue = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.-]{0,63}$")]
