"""Tables and trees of stored models, and the table of a probe, for the terminal and Dagster's pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.reporting.tables import Table

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelInfo, ModelStore
    from modyn_dagster.model_store.probe.report import Report


#: Digits of an id that are shown where the whole would be too long.
SHORT: Final = 12


def lineage(store: ModelStore, model: ModelId, *, most: int = 10) -> list[ModelInfo]:
    """A model and what it derives from, the oldest first; at most so many, and none behind one that is gone."""
    found: list[ModelInfo] = []
    following: ModelId | None = model
    while following is not None and len(found) < most and all(each.id != following for each in found):
        try:
            found.append(store.info(following))
        except (UnknownModel, CorruptFile):
            break
        following = found[-1].base
    return found[::-1]


def lineage_lines(store: ModelStore, model: ModelId) -> list[str]:
    """The same as lines, which say where there are older ones."""
    found = lineage(store, model)
    older = found and found[0].base is not None
    return [*(["… older ones: `modyn-dagster model tree`"] if older else []), *map(model_line, found)]


def models_table(infos: Sequence[ModelInfo]) -> Table:
    """Id, strategy, what it derives from, bytes, and those of the full state."""
    rows = [_row(each) for each in infos]
    stored, full = sum(each.n_bytes for each in infos), sum(each.full_bytes for each in infos)
    caption = f"{len(infos)} models, {bytes_text(stored)} for {bytes_text(full)} of weights"
    return Table(("model", "strategy", "base", "stored", "full", "share"), tuple(rows), caption)


def _row(info: ModelInfo) -> tuple[str, ...]:
    base = (info.base or "–")[:SHORT]
    return info.id[:SHORT], info.strategy, base, bytes_text(info.n_bytes), bytes_text(info.full_bytes), share(info)


def tensors_table(info: ModelInfo) -> Table:
    """Every name of a model: dtype, shape, hash, and what it shares its memory with."""
    rows = [
        (each.name, str(each.dtype).removeprefix("torch."), str(list(each.shape)), each.hash[:SHORT], each.tied_to or "")
        for each in info.tensors
    ]
    return Table(("tensor", "dtype", "shape", "hash", "tied to"), tuple(rows), f"{info.n_elements:,} elements")


def difference_table(one: ModelInfo, other: ModelInfo, names: Sequence[str]) -> Table:
    """The tensors that differ: their hashes in both models."""
    here, there = ({each.name: each.hash[:SHORT] for each in info.tensors} for info in (one, other))
    rows = [(name, here.get(name, "–"), there.get(name, "–")) for name in names]
    caption = f"{len(names)} of {len(here.keys() | there.keys())} tensors differ"
    return Table(("tensor", one.id[:SHORT], other.id[:SHORT]), tuple(rows), caption)


def tree_lines(tree: Mapping[ModelId | None, Sequence[ModelId]], text: Callable[[ModelId], str]) -> Iterator[str]:
    """Every model below what it derives from; an only child stands right below its parent, others branch off.

    An empty line is between two trees, unless both are of one model.

    >>> print("\\n".join(tree_lines({None: ["x", "a"], "a": ["b"], "b": ["c", "d"], "c": ["e"]}, str)))
    x
    <BLANKLINE>
    a
    b
    ├─ c
    │  e
    └─ d
    """
    for n, root in enumerate(roots := tree.get(None, ())):
        if n and not (tree.get(roots[n - 1], ()) == tree.get(root, ()) == ()):
            yield ""
        yield from _tree_lines(tree, text, root)


def _tree_lines(tree: Mapping[ModelId | None, Sequence[ModelId]], text: Callable[[ModelId], str], root: ModelId) -> Iterator[str]:
    # Not recursive: a lineage may be longer than Python's stack.
    waiting = [("", "", root)]
    while waiting:
        before, branch, model = waiting.pop()
        yield before + branch + text(model)
        below = before + {"": "", "├─ ": "│  ", "└─ ": "   "}[branch]
        children = tree.get(model, ())
        if len(children) == 1:
            waiting.append((below, "", children[0]))
        else:
            waiting += [(below, "├─ " if n else "└─ ", child) for n, child in enumerate(reversed(children))]


def model_line(info: ModelInfo) -> str:
    """One model in a tree."""
    stored, weights = bytes_text(info.n_bytes), bytes_text(info.full_bytes)
    return f"{info.id[:SHORT]} {info.strategy}, {stored} for {weights} weights ({share(info)})"


def share(info: ModelInfo) -> str:
    """Stored bytes of the full ones."""
    return f"{info.n_bytes / info.full_bytes:.1%}" if info.full_bytes else "–"


def bytes_text(n_bytes: float) -> str:
    """
    >>> bytes_text(1_234_567)
    '1.23 MB'
    """
    for unit in ("B", "kB", "MB", "GB"):
        if n_bytes < 999.5 or unit == "GB":
            return f"{n_bytes:.3g} {unit}"
        n_bytes /= 1000
    raise AssertionError("unreachable")


def model_json(info: ModelInfo) -> dict[str, Any]:
    """A model as JSON, without its tensors."""
    names = "id strategy reason base n_bytes full_bytes n_elements architecture code environment provenance"
    return {name: getattr(info, name) for name in names.split()} | {"needs": list(info.needs), "tensors": len(info.tensors)}


def probe_table(report: Report, *, only_different: bool) -> Table:
    """A line per call of a layer: whether inputs, outputs and gradients were the same in both runs."""
    header, *lines = report.table()
    shown = [line for line in lines if not only_different or "DIFFERENT" in line]
    return Table(tuple(header), tuple(tuple(line) for line in shown), f"{len(shown)} of {len(lines)} calls shown")


def verdict(report: Report) -> str:
    """Whether models like this one may be stored as their provenance, and what first speaks against it."""
    places = [f"{name}: {here} there, {now} here" for name, (here, now) in report.environment.items()]
    where = f" (other environments: {'; '.join(places)})" if places else ""
    if report.first is None:
        return f"every bit is the same: provenance is safe for this model{where}"
    first = report.first
    at = f"{first.field} of {first.layer} ({first.kind}), call {first.number} in the {first.phase} pass"
    return f"not safe for provenance: the first difference is in the {at}{where}"
