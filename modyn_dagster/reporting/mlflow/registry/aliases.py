"""Aliases of a registered model: moved with the catalog, and left alone where a person has moved one, which is shown as drift."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mlflow import MlflowClient
    from mlflow.entities.model_registry import ModelVersion, RegisteredModel

#: Alias of the newest model, of the champion, and of the one of the two that the spec calls live.
NEWEST: Final = "current"
CHAMPION: Final = "champion"
LIVE: Final = "live"
#: Tags of a registered model, before the name of an alias: the version that it was last set to, and what a person did to it.
SET: Final = "modyn/alias"
DRIFT: Final = "modyn/drift"

logger = logging.getLogger(__name__)


def move_aliases(client: MlflowClient, registered: RegisteredModel, wanted: Mapping[str, ModelVersion]) -> list[str]:
    """Move aliases to their versions, and return a sentence for each that a person has moved elsewhere.

    Such an alias stays where it is until it is deleted in MLflow, or points to the version that it should. One that is missing
    is set.

    Args:
        client: of MLflow.
        registered: the registered model, with aliases and tags as they are.
        wanted: version by alias.
    """
    drifts = []
    for alias, version in wanted.items():
        number, found = str(version.version), _text(registered.aliases.get(alias))
        ours = registered.tags.get(f"{SET}/{alias}", "").split()
        if ours and found not in (None, number, *ours):
            moved = f"alias {alias} was moved by hand to version {found}; by the catalog it is version {number}"
            drifts.append(f"{registered.name}: {moved}; delete it in MLflow, and the next sync sets it again")
            logger.warning("%s", drifts[-1])
            _tag(client, registered, f"{DRIFT}/{alias}", drifts[-1])
            continue
        if found != number:
            # Both count as ours until it is done: a kill in between is no person.
            _tag(client, registered, f"{SET}/{alias}", " ".join([*([found] if found else []), number]))
            client.set_registered_model_alias(registered.name, alias, number)
            client.set_registered_model_tag(registered.name, f"{SET}/{alias}", number)
        else:
            _tag(client, registered, f"{SET}/{alias}", number)
        if f"{DRIFT}/{alias}" in registered.tags:
            client.delete_registered_model_tag(registered.name, f"{DRIFT}/{alias}")
    return drifts


def _tag(client: MlflowClient, registered: RegisteredModel, key: str, value: str) -> None:
    if registered.tags.get(key) != value:
        client.set_registered_model_tag(registered.name, key, value)


def _text(version: object) -> str | None:
    return None if version is None else str(version)
