"""A state on its way to the shelf: the strategy is settled, and the file committed; by itself where what it needs goes away."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from torch import Tensor

from modyn_dagster.environment import Environment
from modyn_dagster.errors import StorageError, UnknownModel
from modyn_dagster.model_store.commit.dependencies import NeededGoes, Overtaken, relying
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import About
from modyn_dagster.model_store.format.model_file import Stored
from modyn_dagster.model_store.format.reading import read_state
from modyn_dagster.model_store.format.record import Record
from modyn_dagster.model_store.loading import verify_all
from modyn_dagster.model_store.provenance.recipe import Architecture, Provenance
from modyn_dagster.model_store.repository import Shelf
from modyn_dagster.model_store.strategies.adaptive import choose
from modyn_dagster.model_store.strategies.settings import Adaptive, Retrain, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import Saving


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
    """Commit a state, unless it is there and sound; one that is there without weights gets them where they are asked for."""
    with shelf.pool() as pool:
        record = Record.of(state, pool)
        with shelf.folder.adding(), shelf.sources() as sources:
            found = None if base is None else sources.model(base)
            find = shelf.finder(sources.model)
            there, is_damaged = _what_is_there(shelf, record.id)
            relies = partial(relying, shelf, lambda: there is not None or is_damaged or not shelf.has(record.id))
            saving = Saving(shelf.folder, state, record, found, sources, find, pool, shelf.threads, relies)
            # Others may rely on what its file held, and it on them: stored again, it needs nobody.
            alone = replace(saving, base=None, find=_nowhere)
            try:
                if is_damaged:
                    shelf.keep_only(_commit(shelf, alone, Snapshot(), about_of(shelf, base, architecture, provenance)))
                elif there is None:
                    shelf.keep_one(_commit(shelf, saving, strategy, about_of(shelf, base, architecture, provenance)))
                elif not there.has_weights:
                    _add_weights(shelf, alone, strategy, there.about)
            except Overtaken:
                return record.id
            except StorageError:
                if found is None or not shelf.is_stored_anew(found):
                    raise
                return save(shelf, state, strategy, base, architecture, provenance)
    return record.id


def _add_weights(shelf: Shelf, saving: Saving, strategy: Strategy, about: About) -> None:
    """Whoever saved the model before could do without; what they recorded of it stays, how to train it again too."""
    reason = "asked for"
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    if not isinstance(strategy, Retrain):
        # In a file of the same kind, which takes the place of that of before at once.
        shelf.keep_one(_commit(shelf, saving, Snapshot(compress=True), about, f"{reason}; it was there without weights"))


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
            stored = saving.write_without(child, gone, about)
        except NeededGoes as error:
            stored = _write_alone(saving, about, error)
        shelf.keep_only(stored)


def _what_is_there(shelf: Shelf, model: ModelId) -> tuple[Stored | None, bool]:
    """The model, unless it is not there, or not any more, or damaged; and whether it is that."""
    try:
        if not shelf.has(model):
            return None, False
        is_damaged = bool(verify_all(shelf, [model]))
        return (None if is_damaged else shelf.open(model)), is_damaged
    except UnknownModel:
        return None, False


def _commit(shelf: Shelf, saving: Saving, strategy: Strategy, about: About, reason: str = "") -> Stored:
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
    return stored


def _write_alone(saving: Saving, about: About, error: NeededGoes) -> Stored:
    alone = replace(saving, base=None, find=_nowhere)
    reason = f"{about.reason}; by itself, for {min(error.models)} was removed"
    return alone.write(alone.settled(Snapshot()), replace(about, reason=reason))


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None
