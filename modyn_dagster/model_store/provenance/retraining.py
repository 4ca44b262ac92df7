"""Models that are stored as their provenance, trained again: bit for bit, or not at all."""

import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal, get_args

from torch import Tensor

from modyn_dagster.digest import code_version
from modyn_dagster.environment import Environment
from modyn_dagster.errors import ConfigError, CorruptFile, ModynError, NotReproducible, UnknownModel, WeightsNotStored
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.record import Record, as_loaded
from modyn_dagster.model_store.format.tensors import without_wrappers
from modyn_dagster.model_store.provenance.documents import Documents
from modyn_dagster.model_store.provenance.recipe import Provenance

#: What to do where this process differs from where the model was trained.
OnDifference = Literal["require", "warn", "ignore"]

# More trainings in a row than anybody waits for.
_MAX_LINEAGE: Final = 10_000


def lineage_to_train(model: Stored, open_model: Callable[[ModelId], Stored]) -> tuple[Stored | None, list[Stored]]:
    """The nearest model with weights that training starts from (None: from nothing), and those to train, in order.

    ``CorruptFile`` for a base that is gone, and for a cycle of bases.
    """
    todo, seen = [model], {model.id}
    while (base := todo[-1].about.start) is not None:
        if base in seen:
            raise CorruptFile(todo[-1].path, "a base that was there before it", f"{base}: a cycle of bases")
        if len(todo) >= _MAX_LINEAGE:
            raise CorruptFile(todo[-1].path, f"at most {_MAX_LINEAGE} trainings in a row", "more")
        try:
            stored = open_model(base)
        except UnknownModel as error:
            raise CorruptFile(todo[-1].path, f"model {base}, which its training starts from", "no model of that id") from error
        if stored.has_weights:
            return stored, todo[::-1]
        seen.add(base)
        todo.append(stored)
    return None, todo[::-1]


def provenance_of(model: Stored, documents: Documents) -> Provenance:
    """How a model was trained, and where. ``WeightsNotStored`` when neither weights nor this is there."""
    if model.about.provenance is None:
        raise WeightsNotStored(model.id, "and no provenance either")
    environment = None if model.about.environment is None else documents.environment(model.about.environment)
    return Provenance.parse(model.about.provenance, environment)


def require_known(on_difference: str) -> None:
    """``ConfigError`` for anything but an ``OnDifference``: what was meant as ``require`` must not be let through."""
    known = get_args(OnDifference)
    if on_difference not in known:
        raise ConfigError("model store", "environment", on_difference, f"must be one of {', '.join(known)}")


def require_environment(provenance: Provenance, on_difference: OnDifference) -> None:
    """Raise, warn or do nothing where this process or its code differs.

    The thread count is set for the training and may differ.
    """
    if on_difference == "ignore":
        return
    recorded = provenance.environment
    found = {} if recorded is None else dict(recorded.differences(Environment.now()))
    differences = {f"environment.{name}": pair for name, pair in found.items() if name != "threads"}
    if provenance.code is not None and (code := code_version(provenance.train)) != provenance.code:
        differences["code"] = (provenance.code, code)
    for name, (expected, here) in differences.items():
        if on_difference == "require":
            raise NotReproducible(name, expected, here)
        warnings.warn(f"the model was trained with {name} {expected}, here it is {here}", stacklevel=5)


def train_again(
    model: Stored, base: Mapping[str, Tensor] | None, provenance: Provenance, allow: Sequence[str]
) -> dict[str, Tensor]:
    """The state, which has the hash that was recorded, as reading it would give it; ``NotReproducible`` otherwise."""
    try:
        state = without_wrappers(provenance.run(base, allow=allow))
    except ModynError:
        raise
    except Exception as error:
        raise NotReproducible("train", f"{provenance.train} to end", f"{type(error).__name__}: {error}") from error
    found = Record.of(state, hashing=model.record.hashing)
    if found.id != model.id:
        raise NotReproducible("hash", model.id, found.id)
    return as_loaded(state, found)
