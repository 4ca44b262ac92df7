"""Retraining of models stored as their provenance: bit for bit, or not at all."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

from torch import Tensor

from modyn_dagster.errors import ConfigError, CorruptFile, ModynError, NotReproducible, UnknownModel, WeightsNotStored
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import StoredModel
from modyn_dagster.model_store.format.record import Record, as_loaded
from modyn_dagster.model_store.format.tensors import without_wrappers
from modyn_dagster.model_store.provenance.documents import Documents
from modyn_dagster.model_store.provenance.recipe import Provenance
from modyn_dagster.reproducibility.environment import Environment
from modyn_dagster.values.digest import code_version

#: Reaction to an environment that differs from that of the training.
OnDifference = Literal["require", "warn", "ignore"]

# Limit of trainings in a row.
_MAX_LINEAGE: Final = 10_000


def lineage_to_train(
    model: StoredModel, open_model: Callable[[ModelId], StoredModel]
) -> tuple[StoredModel | None, list[StoredModel]]:
    """Nearest ancestor with weights that training starts from (None: from scratch), and the models to train, in order.

    ``CorruptFile`` for a missing base, and for a cycle of bases.
    """
    trainings, seen = [model], {model.id}
    while (base := trainings[-1].metadata.training_base) is not None:
        if base in seen:
            raise CorruptFile(trainings[-1].path, "a base that was there before it", f"{base}: a cycle of bases")
        if len(trainings) >= _MAX_LINEAGE:
            raise CorruptFile(trainings[-1].path, f"at most {_MAX_LINEAGE} trainings in a row", "more")
        try:
            stored = open_model(base)
        except UnknownModel as error:
            expected = f"model {base}, which its training starts from"
            raise CorruptFile(trainings[-1].path, expected, "no model of that id") from error
        if stored.has_weights:
            return stored, trainings[::-1]
        seen.add(base)
        trainings.append(stored)
    return None, trainings[::-1]


def provenance_of(model: StoredModel, documents: Documents) -> Provenance:
    """Recipe and environment of a model. ``WeightsNotStored`` for a model without weights and provenance."""
    if model.metadata.provenance is None:
        raise WeightsNotStored(model.id, "and no provenance either")
    environment = None if model.metadata.environment is None else documents.environment(model.metadata.environment)
    return Provenance.parse(model.metadata.provenance, environment)


def require_mode(on_difference: str) -> None:
    """``ConfigError`` for anything but an ``OnDifference``: a misspelt ``require`` must not pass."""
    modes = get_args(OnDifference)
    if on_difference not in modes:
        raise ConfigError("model store", "environment", on_difference, f"must be one of {', '.join(modes)}")


def require_environment(provenance: Provenance, on_difference: OnDifference) -> None:
    """Raise, warn or do nothing where this process or its code differs from the recorded ones.

    The numbers of threads and ranks may differ: training sets them.
    """
    if on_difference == "ignore":
        return
    recorded = provenance.environment
    pairs = {} if recorded is None else recorded.differences(Environment.now())
    differences = {f"environment.{name}": pair for name, pair in pairs.items() if name not in ("threads", "ranks")}
    if provenance.code is not None and (code := code_version(provenance.train)) != provenance.code:
        differences["code"] = (provenance.code, code)
    for name, (expected, here) in differences.items():
        if on_difference == "require":
            raise NotReproducible(name, expected, here)
        warnings.warn(f"the model was trained with {name} {expected}, here it is {here}", stacklevel=5)


def retrain_model(
    model: StoredModel, base: Mapping[str, Tensor] | None, provenance: Provenance, allow: Sequence[str]
) -> dict[str, Tensor]:
    """Train the state and check it against the recorded hash; ``NotReproducible`` where it differs.

    The state is returned as loading it would return it.
    """
    try:
        state = without_wrappers(provenance.run(base, allow=allow))
    except ModynError:
        raise
    except Exception as error:
        raise NotReproducible("train", f"{provenance.train} to end", f"{type(error).__name__}: {error}") from error
    record = Record.of(state)
    if record.id != model.id:
        raise NotReproducible("hash", model.id, record.id)
    return as_loaded(state, record)
