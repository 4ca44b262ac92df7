"""Aliases of a registered model: moved with the catalog, and left alone where a person has moved one, which is shown as drift."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.catalog.triggers import partition_key
from modyn_dagster.reporting.mlflow.registry.versions import PROMOTED, TRIGGER, VERDICT, JudgedModels
from modyn_dagster.reporting.scores import spec_of

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
#: Tag of a registered model whose aliases are all recorded: one without a record was set by a person.
RECORDED: Final = {"modyn/aliases": "recorded"}
#: Tag of a registered model that a sync has made, and aliases that were set before there were records.
_MADE: Final = "modyn/pipeline"
_UNRECORDED: Final = (NEWEST, CHAMPION)

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class AliasMoves:
    """Aliases after a sync.

    Attributes:
        moved: versions by the aliases that this sync has set.
        drifts: a sentence for each alias that a person has moved elsewhere, where it stays.
    """

    moved: Mapping[str, str]
    drifts: Sequence[str]


def wanted_aliases(run: RunRow, found: JudgedModels, known: Mapping[str, ModelVersion]) -> dict[str, ModelVersion]:
    """Versions by the aliases that they should have; where there is no champion, none has the champion's.

    Args:
        run: that has the aliases.
        found: its models.
        known: its versions by trigger, among them the newest and the champion's.
    """
    wanted = {NEWEST: known[partition_key(run.id, found.models[-1].ordinal)]}
    if found.champion is not None:
        wanted[CHAMPION] = known[partition_key(run.id, found.champion)]
    live = CHAMPION if spec_of(run).live_model == "champion" else NEWEST
    return wanted | ({LIVE: wanted[live]} if live in wanted else {})


def move_aliases(client: MlflowClient, registered: RegisteredModel, wanted: Mapping[str, ModelVersion]) -> AliasMoves:
    """Move aliases to their versions, except those that a person has moved elsewhere.

    Such an alias stays where it is until it is deleted in MLflow, or points to the version that it should. One that is missing
    is set. Each alias has a record of the version that it was set to, and one that is elsewhere was moved by a person. A
    registered model from before there were records has none yet: an alias on a version to which a sync may have set it is moved
    with a warning there.

    Args:
        client: of MLflow.
        registered: the registered model, with aliases and tags as they are.
        wanted: version by alias.
    """
    moved, drifts = dict[str, str](), list[str]()
    unrecorded = _MADE in registered.tags and not RECORDED.keys() <= registered.tags.keys()
    for alias, version in wanted.items():
        number, found = str(version.version), _text(registered.aliases.get(alias))
        ours = registered.tags.get(f"{SET}/{alias}", "").split()
        if found not in (None, number, *ours) and not (not ours and unrecorded and _adopt(client, registered, alias, number)):
            by_hand = f"alias {alias} was moved by hand to version {found}; by the catalog it is version {number}"
            drifts.append(f"{registered.name}: {by_hand}; delete it in MLflow, and the next sync sets it again")
            logger.warning("%s", drifts[-1])
            _tag(client, registered, f"{DRIFT}/{alias}", drifts[-1])
            continue
        if found != number:
            # Both count as ours until it is done: a kill in between is no person.
            _tag(client, registered, f"{SET}/{alias}", " ".join([*([found] if found else []), number]))
            client.set_registered_model_alias(registered.name, alias, number)
            client.set_registered_model_tag(registered.name, f"{SET}/{alias}", number)
            moved[alias] = number
        else:
            _tag(client, registered, f"{SET}/{alias}", number)
        if f"{DRIFT}/{alias}" in registered.tags:
            client.delete_registered_model_tag(registered.name, f"{DRIFT}/{alias}")
    for key, value in RECORDED.items():
        _tag(client, registered, key, value)
    return AliasMoves(moved, drifts)


def _adopt(client: MlflowClient, registered: RegisteredModel, alias: str, number: str) -> bool:
    """Test that an alias without a record may be where an earlier sync has set it, and warn that it is moved from there."""
    if alias not in _UNRECORDED:
        return False
    version = client.get_model_version(registered.name, str(registered.aliases[alias]))
    if TRIGGER not in version.tags or (alias == CHAMPION and not version.tags.get(VERDICT, "").startswith(PROMOTED)):
        return False
    change = f"from version {version.version} to {number}"
    logger.warning("%s: alias %s goes %s; no record says who had set it", registered.name, alias, change)
    return True


def _tag(client: MlflowClient, registered: RegisteredModel, key: str, value: str) -> None:
    if registered.tags.get(key) != value:
        client.set_registered_model_tag(registered.name, key, value)


def _text(version: object) -> str | None:
    return None if version is None else str(version)
