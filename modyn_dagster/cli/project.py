"""Project and model store of a command: those of the current folder, of ``MODYN_PROJECT``, or the ones named."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from modyn_dagster.errors import ConfigError, UnknownModel
from modyn_dagster.imports import add_code_folder
from modyn_dagster.settings import Settings

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelStore
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


#: Which store.
store_option = click.option("--store", "root", metavar="ROOT", help="Folder or URL; default: that of the pipelines' models.")


def open_store(root: str | None, *allow: str) -> "ModelStore":
    """The store at ``root``, else the project's.

    Functions below ``allow`` may run, beside what builds models of the box and what trains those of pipelines again.
    """
    from modyn_dagster.model_store import ModelStore
    from modyn_dagster.pipeline.platform import BUILDER, TRAINING, models_folder

    if root is not None and "://" not in root and not Path(root).is_dir():
        raise ConfigError("model", "store", root, "must be a folder that is there, or a URL")
    settings = Settings.from_environment()
    add_code_folder(settings.project)
    return ModelStore(root or models_folder(settings), allow=[BUILDER, TRAINING, *allow])


def chosen_model(store: "ModelStore", text: str) -> "ModelId":
    """The one model whose id begins like this. ``UnknownModel`` when there is none, ``ConfigError`` when there are more."""
    found = [model for model in store.list() if model.startswith(text)] if text else []
    if not found:
        raise UnknownModel(text, store.root, f" of {len(store.list())} models; `modyn-dagster model list` shows them")
    if len(found) > 1:
        raise ConfigError("model", "id", text, f"must be that of one model; {len(found)} begin like this: give more digits")
    return found[0]
