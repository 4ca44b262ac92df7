"""Estimators of a spec by import path, nested ones first."""

import inspect
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.learning.trainers import is_nested


def build_estimator(
    path: str,
    parameters: Mapping[str, Any],
    base: type,
    *,
    source: str,
    field: str,
    unset: Mapping[str, Any] = MappingProxyType({}),
) -> Any:
    """Build an estimator without fitting it.

    Args:
        path: ``package.module:Class``.
        parameters: keyword arguments, with nested estimators as ``{estimator, parameters}``.
        base: class of the library that all of them derive from.
        source: name of the pipeline, for errors.
        field: field of the block that has ``estimator`` and ``parameters``.
        unset: values of parameters that are not given, for each class that has them.

    Raises:
        ImportPathError: the path cannot be imported, or is no such class.
        ConfigError: the class refused its parameters.
    """
    found = import_callable(path, source=source, field=f"{field}.estimator")
    if not (isinstance(found, type) and issubclass(found, base)):
        rule = f"must be a class that derives from {base.__module__.partition('.')[0]}'s {base.__name__}"
        raise ImportPathError(source, f"{field}.estimator", path, rule)
    place = f"{field}.parameters"
    arguments = {name: _value(value, base, source, f"{place}.{name}", unset) for name, value in parameters.items()}
    known = inspect.signature(found).parameters
    arguments |= {name: value for name, value in unset.items() if name in known and name not in arguments}
    # A list for `*steps` is given by that name.
    several = next((name for name, one in known.items() if one.kind is one.VAR_POSITIONAL and name in arguments), None)
    try:
        return found(**arguments) if several is None else found(*arguments.pop(several), **arguments)
    except Exception as error:
        rule = f"{path} refused them: {type(error).__name__}: {error}"
        raise ConfigError(source, place, dict(parameters), rule) from error


def _value(value: Any, base: type, source: str, field: str, unset: Mapping[str, Any]) -> Any:
    if is_nested(value):
        inner = value.get("parameters", {})
        return build_estimator(value["estimator"], inner, base, source=source, field=field, unset=unset)
    if isinstance(value, Mapping):
        return {name: _value(part, base, source, f"{field}.{name}", unset) for name, part in value.items()}
    if isinstance(value, list):
        parts = [_value(part, base, source, f"{field}.{i}", unset) for i, part in enumerate(value)]
        # Steps of a pipeline and members of an ensemble are pairs of a name and an estimator.
        return tuple(parts) if isinstance(value[0] if value else None, str) and any(map(is_nested, value)) else parts
    return value
