"""The project that a command works on: the one in the current folder, or in ``MODYN_PROJECT``."""

from pathlib import Path
from typing import TYPE_CHECKING

from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.pipeline.platform import Platform


def project_settings() -> Settings:
    """The environment of a command that needs a project; ``ConfigError`` where there is none."""
    settings = Settings.from_environment()
    if (error := missing_project(settings.project)) is not None:
        raise error
    return settings


def missing_project(folder: Path) -> ConfigError | None:
    """What to say of a folder that holds no project; an empty one would look like a project that has done nothing yet."""
    if any((folder / part).is_dir() for part in ("datasets", "pipelines")):
        return None
    rule = (
        "must be a folder with datasets/ or pipelines/; go to one or name it"
        if folder.is_dir()
        else "must be a folder that exists"
    )
    return ConfigError("environment", "MODYN_PROJECT", str(folder), rule)


def open_platform() -> "Platform":
    """The project of the environment."""
    from modyn_dagster.pipeline.platform import Platform

    return Platform.open(project_settings())
