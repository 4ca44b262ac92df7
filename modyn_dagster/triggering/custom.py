"""A policy of the user's, by import path."""

from collections.abc import Mapping
from typing import Any

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.triggering.policy import TriggeringPolicy


def custom_policy(factory: str, config: Mapping[str, Any], *, source: str = "trigger") -> TriggeringPolicy:
    """What ``factory(**config)`` returns.

    Args:
        factory: import path ``package.module:function``; a class is a function that returns one of its objects.
        config: keyword arguments, as the trigger block gives them.
        source: where the block stands, for errors.

    Raises:
        ImportPathError: the path cannot be imported, or what it returns is no ``TriggeringPolicy``.
        ConfigError: the factory refused its config.
    """
    make = import_callable(factory, source=source, field="factory")
    try:
        policy = make(**config)
    except Exception as error:
        raise ConfigError(source, "config", dict(config), f"{factory} refused it: {type(error).__name__}: {error}") from error
    if not isinstance(policy, TriggeringPolicy):
        rule = f"must return a TriggeringPolicy of modyn_dagster.triggering, not {type(policy).__name__}"
        raise ImportPathError(source, "factory", factory, rule)
    return policy
