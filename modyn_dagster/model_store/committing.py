"""A state on its way to the shelf: the strategy is settled, and the file committed; by itself where what it needs goes away."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torch import Tensor

from modyn_dagster.errors import StorageError, UnknownModel
from modyn_dagster.model_store.about import About
from modyn_dagster.model_store.adaptive import choose
from modyn_dagster.model_store.architecture import Architecture
from modyn_dagster.model_store.environment import Environment
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.loading import verify_all
from modyn_dagster.model_store.provenance import Provenance
from modyn_dagster.model_store.reading import read_state
from modyn_dagster.model_store.record import Record
from modyn_dagster.model_store.relying import NeededGoes, Overtaken, relying
from modyn_dagster.model_store.saving import Saving
from modyn_dagster.model_store.shelf import Shelf
from modyn_dagster.model_store.stored import Stored
from modyn_dagster.model_store.strategies import Adaptive, Retrain, Snapshot, Strategy


def about_of(shelf: Shelf, base: ModelId | None, architecture: Architecture | None, provenance: Provenance | None) -> About:
    """What is recorded of a model by every strategy; its documents are stored."""
    recorded = None if provenance is None else provenance.environment
    source = None if architecture is None else architecture.source()
    return About(
        "snapshot",
        base=base,
        environment=shelf.documents.save(json.dumps((recorded or Environment.now()).to_json(), sort_keys=True)),
        code=None if source is None else shelf.documents.save(source),
        architecture=None if architecture is None else architecture.to_json(),
        provenance=None if provenance is None else provenance.to_json(),
    )


def save(
    shelf: Shelf,
    state: Mapping[str, Tensor],
    strategy: Strategy,
    base: ModelId | None,
    architecture: Architecture | None,
    provenance: Provenance | None,
) -> ModelId:
    """Commit a state, unless it is there and sound."""
    with shelf.pool() as pool:
        record = Record.of(state, pool.map)
        with shelf.folder.adding(), shelf.sources() as sources:
            found = None if base is None else sources.model(base)
            find = shelf.finder(sources.model)
            if is_sound := _is_sound(shelf, record.id):
                return record.id
            if is_sound is False:
                # Others may rely on what its file held, and it on them: put right, it needs nobody.
                strategy, found, find = Snapshot(), None, _nowhere
            relies = partial(relying, shelf, lambda: is_sound is False or not shelf.has(record.id))
            saving = Saving(shelf.folder, state, record, found, sources, find, pool, shelf.threads, relies)
            try:
                _commit(shelf, saving, strategy, about_of(shelf, base, architecture, provenance))
            except Overtaken:
                return record.id
            except StorageError:
                if found is None or not shelf.is_stored_anew(found):
                    raise
                return save(shelf, state, strategy, base, architecture, provenance)
    return record.id


def store_without(shelf: Shelf, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    """Store a model again so that it does not need one that goes, as a difference to ``base`` where there is one."""
    if gone not in child.needs:
        return
    try:
        _store_without(shelf, child, gone, base)
    except (StorageError, Overtaken):
        if not shelf.is_stored_anew(child):
            raise
        store_without(shelf, shelf.open(child.id), gone, base)


def _store_without(shelf: Shelf, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    with shelf.pool() as pool, shelf.sources() as sources:
        state = read_state(child, sources, pool)
        found = None if base is None else sources.model(base)
        relies = partial(relying, shelf, lambda: not shelf.is_stored_anew(child))
        saving = Saving(shelf.folder, state, child.record, found, sources, _nowhere, pool, shelf.threads, relies)
        reason = f"{child.about.reason}; stored again without {gone}"
        about = replace(child.about, reason=reason, base=base if child.about.base == gone else child.about.base)
        try:
            saving.write_without(child, gone, about)
        except NeededGoes as error:
            _write_alone(saving, about, error)


def _is_sound(shelf: Shelf, model: ModelId) -> bool | None:
    """None when it is not there, or not any more."""
    try:
        return not verify_all(shelf, [model], None) if shelf.has(model) else None
    except UnknownModel:
        return None


def _commit(shelf: Shelf, saving: Saving, strategy: Strategy, about: About) -> None:
    reason = ""
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    settled = saving.settled(strategy)
    about = replace(about, reason=reason or saving.why(strategy) or "asked for")
    try:
        stored = saving.write(settled, about)
    except NeededGoes as error:
        if isinstance(settled, Retrain):
            raise UnknownModel(min(error.models), shelf.folder.root) from None
        stored = _write_alone(saving, about, error)
    # A hint lost costs nothing but the sharing of its tensor.
    with suppress(OSError, StorageError):
        shelf.index.add(shelf.shareable(stored), saving.model)


def _write_alone(saving: Saving, about: About, error: NeededGoes) -> Stored:
    alone = replace(saving, base=None, find=_nowhere)
    reason = f"{about.reason}; by itself, for {min(error.models)} was removed"
    return alone.write(alone.settled(Snapshot()), replace(about, reason=reason))


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None
