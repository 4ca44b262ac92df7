"""A state on its way to the shelf: the strategy is settled, the file committed, and what it relies on looked after again."""

import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace

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
    """Commit a state, unless it is there and sound; one that has only its provenance gets the weights that are asked for."""
    with shelf.pool() as pool:
        record = Record.of(state, pool.map)
        with shelf.folder.adding(), shelf.sources() as sources:
            found = None if base is None else sources.model(base)
            find = shelf.finder(sources.model)
            keep, about = shelf.keep_one, None
            if shelf.has(record.id):
                if verify_all(shelf, [record.id]):
                    # Others may rely on what its file held, and it on them: put right, it needs nobody.
                    strategy, found, find, keep = Snapshot(), None, _nowhere, shelf.keep_only
                elif (there := shelf.open(record.id)).has_weights or isinstance(strategy, Retrain | Adaptive):
                    return record.id
                else:
                    about = there.about
            saving = Saving(shelf.folder, state, record, found, sources, find, pool, shelf.threads)
            if about is not None:
                strategy = _in_a_pack(saving.settled(strategy))
            keep(_commit(shelf, saving, strategy, about or about_of(shelf, base, architecture, provenance)))
    return record.id


def store_without(shelf: Shelf, child: Stored, gone: ModelId, base: ModelId | None) -> None:
    """Store a model again so that it does not need one that goes, as a difference to ``base`` where there is one."""
    with shelf.pool() as pool, shelf.sources() as sources:
        state = read_state(child, sources, pool)
        found = None if base is None else sources.model(base)
        saving = Saving(shelf.folder, state, child.record, found, sources, _nowhere, pool, shelf.threads)
        reason = f"{child.about.reason}; stored again without {gone}"
        about = replace(child.about, reason=reason, base=base if child.about.base == gone else child.about.base)
        _require_needed(shelf, saving, saving.write_without(child, gone, about))


def _commit(shelf: Shelf, saving: Saving, strategy: Strategy, about: About) -> Stored:
    reason = ""
    if isinstance(strategy, Adaptive):
        strategy, reason = choose(saving, strategy, about)
    settled = saving.settled(strategy)
    stored = saving.write(settled, replace(about, reason=reason or saving.why(strategy) or "asked for"))
    stored = _require_needed(shelf, saving, stored)
    # A hint lost costs nothing but the sharing of its tensor.
    with suppress(OSError, StorageError):
        shelf.index.add(shelf.shareable(stored), saving.model)
    return stored


def _require_needed(shelf: Shelf, saving: Saving, stored: Stored) -> Stored:
    """Where removers are not kept out: what needs a model that went meanwhile is stored again by itself."""
    if not (going := shelf.folder.gone(stored.needs)):
        return stored
    if not stored.has_weights:
        shelf.remove(saving.model)
        raise UnknownModel(min(going), shelf.folder.root)
    alone = replace(saving, base=None, find=_nowhere)
    reason = f"{stored.about.reason}; by itself, for {min(going)} was removed"
    stored = alone.write(alone.settled(Snapshot()), replace(stored.about, reason=reason))
    shelf.keep_only(stored)
    return stored


def _in_a_pack(strategy: Strategy) -> Strategy:
    """Weights for a model that has none so far: in a file of the same kind, which takes the place of that of before at once."""
    return replace(strategy, compress=True) if isinstance(strategy, Snapshot) else strategy


def _nowhere(leaf: str) -> ModelId | None:  # noqa: ARG001 - a ``Find``
    return None
