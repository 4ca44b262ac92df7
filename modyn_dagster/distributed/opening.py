"""Choice of the workers of a process, by name."""

from modyn_dagster.distributed.local_group import LocalGroup
from modyn_dagster.distributed.protocols import Group
from modyn_dagster.errors import ConfigError


def open_group(name: str) -> Group:
    """Open a group of ranks by its name: ``processes`` of this machine; ``ConfigError`` for another one."""
    if name != "processes":
        raise ConfigError("environment", "MODYN_RANKS", name, "must be `processes`")
    return LocalGroup()
