"""Models by the text that names them: the first digits of an id, or the partition key of a trigger."""

import re
from dataclasses import dataclass
from typing import Final

import sqlalchemy as sa

from modyn_dagster.catalog.results.models import ModelRow, ModelUse, model_uses
from modyn_dagster.catalog.runs import get_run
from modyn_dagster.catalog.triggers import get_trigger
from modyn_dagster.errors import ConfigError, UnknownName
from modyn_dagster.pipeline.context import TriggerContext, load_context
from modyn_dagster.pipeline.platform import Platform

_PARTITION_KEY: Final = re.compile(r"(\d+)-(\d+)")


@dataclass(frozen=True, slots=True)
class NamedModel:
    """A model with the context of the trigger that it is the model of, whose view reaches to the newest batch."""

    context: TriggerContext
    model: ModelRow

    @property
    def title(self) -> str:
        """Pipeline, partition key and the first digits of the id.

        They are those of `modyn-dagster model list`.
        """
        return f"{self.context.run.pipeline} {self.context.trigger.partition_key} ({self.model.hash[:12]})"

    @property
    def newest_seen(self) -> int:
        """Newest key that the model or the decision to train it has seen."""
        return max(self.context.trigger.key, self.context.trigger.point)


def named_model(platform: Platform, text: str) -> NamedModel:
    """Find a model of a trigger.

    Args:
        platform: of the project.
        text: an id or its first digits, or a partition key such as ``000003-000012``. Where several triggers have made one model,
            its id stands for the newest of them.

    Raises:
        UnknownName: no trigger has such a model.
        ConfigError: several models begin like this.
    """
    with platform.transaction() as conn:
        use = _use_of(model_uses(conn), text)
        return _load(conn, platform, use)


def _use_of(uses: list[ModelUse], text: str) -> ModelUse:
    key = _PARTITION_KEY.fullmatch(text)
    if key is not None:
        place = int(key[1]), int(key[2])
        found = [use for use in uses if (use.run_id, use.ordinal) == place]
        if not found:
            raise UnknownName("trigger with a model and partition key", text)
        return found[0]
    found = [use for use in uses if text and use.hash.startswith(text)]
    if not found:
        raise UnknownName("model of a trigger", text)
    if (n := len({use.hash for use in found})) > 1:
        raise ConfigError("model", "id", text, f"must be that of one model; {n} begin like this: give more digits")
    return found[-1]


def _load(conn: sa.Connection, platform: Platform, use: ModelUse) -> NamedModel:
    run, trigger = get_run(conn, use.run_id), get_trigger(conn, use.trigger_id)
    view = platform.read_view_of(conn, run)
    context = load_context(conn, platform, run, trigger, view, has_previous=False)
    model = next(model for model in context.models if model.trigger_id == use.trigger_id)
    return NamedModel(context, model)
