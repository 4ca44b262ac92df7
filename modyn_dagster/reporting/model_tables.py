"""Tables and trees of stored models, and the table of a probe, for the terminal and Dagster's pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.reporting.tables import ABSENT, Table

if TYPE_CHECKING:
    from modyn_dagster.model_store import ModelId, ModelInfo, ModelStore
    from modyn_dagster.model_store.probe.report import Report


#: Digits of a shortened id.
SHORT: Final = 12


def lineage(store: ModelStore, model: ModelId, *, most: int = 10) -> list[ModelInfo]:
    """A model and its bases, the oldest first; at most ``most``, up to a base that is missing or damaged."""
    models: list[ModelInfo] = []
    base: ModelId | None = model
    while base is not None and len(models) < most and all(info.id != base for info in models):
        try:
            models.append(store.info(base))
        except (UnknownModel, CorruptFile):
            break
        base = models[-1].base
    return models[::-1]


def lineage_lines(store: ModelStore, model: ModelId) -> list[str]:
    """Lineage of a model as lines of text; the first one tells if there are older models."""
    models = lineage(store, model)
    older = models and models[0].base is not None
    return [*(["… older ones: `modyn-dagster model tree`"] if older else []), *map(model_line, models)]


def models_table(infos: Sequence[ModelInfo]) -> Table:
    """Table of models: id, strategy, base, stored bytes, and bytes of the full state."""
    rows = [_row(info) for info in infos]
    stored, full = sum(info.n_bytes for info in infos), sum(info.full_bytes for info in infos)
    caption = f"{len(infos)} models, {bytes_text(stored)} for {bytes_text(full)} of weights"
    return Table(("model", "strategy", "base", "stored", "full", "share"), tuple(rows), caption)


def _row(info: ModelInfo) -> tuple[str, ...]:
    base = (info.base or ABSENT)[:SHORT]
    return info.id[:SHORT], info.strategy, base, bytes_text(info.n_bytes), bytes_text(info.full_bytes), stored_share(info)


def tensors_table(info: ModelInfo) -> Table:
    """Table of the tensors of a model: dtype, shape, hash, and the tensor it shares memory with."""
    rows = [
        (
            tensor.name,
            str(tensor.dtype).removeprefix("torch."),
            str(list(tensor.shape)),
            tensor.hash[:SHORT],
            tensor.tied_to or "",
        )
        for tensor in info.tensors
    ]
    return Table(("tensor", "dtype", "shape", "hash", "tied to"), tuple(rows), f"{info.n_elements:,} elements")


def difference_table(one: ModelInfo, other: ModelInfo, names: Sequence[str]) -> Table:
    """Table of the tensors that differ, with their hashes in both models."""
    hashes, others = ({tensor.name: tensor.hash[:SHORT] for tensor in info.tensors} for info in (one, other))
    rows = [(name, hashes.get(name, ABSENT), others.get(name, ABSENT)) for name in names]
    caption = f"{len(names)} of {len(hashes.keys() | others.keys())} tensors differ"
    return Table(("tensor", one.id[:SHORT], other.id[:SHORT]), tuple(rows), caption)


def tree_lines(tree: Mapping[ModelId | None, Sequence[ModelId]], text: Callable[[ModelId], str]) -> Iterator[str]:
    """Tree of models as lines: every model below its base; an only child directly below its parent, others in branches.

    An empty line separates two trees, unless both are single models.

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
    """A model as one line of a tree."""
    stored, weights = bytes_text(info.n_bytes), bytes_text(info.full_bytes)
    return f"{info.id[:SHORT]} {info.strategy}, {stored} for {weights} weights ({stored_share(info)})"


def stored_share(info: ModelInfo) -> str:
    """Stored bytes as a share of the full state's."""
    return f"{info.n_bytes / info.full_bytes:.1%}" if info.full_bytes else ABSENT


def bytes_text(n_bytes: float) -> str:
    """Number of bytes in a readable unit.

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
    """Table of layer calls: equality of inputs, outputs and gradients in both runs."""
    header, *lines = report.table()
    shown = [line for line in lines if not only_different or "DIFFERENT" in line]
    return Table(tuple(header), tuple(tuple(line) for line in shown), f"{len(shown)} of {len(lines)} calls shown")


def probe_verdict(report: Report) -> str:
    """Sentence that tells if models like this one may be stored as their provenance, and the first reason against it."""
    places = [f"{name}: {other} there, {own} here" for name, (other, own) in report.environment.items()]
    where = f" (other environments: {'; '.join(places)})" if places else ""
    if report.first is None:
        return f"every bit is the same: provenance is safe for this model{where}"
    first = report.first
    at = f"{first.field} of {first.layer} ({first.kind}), call {first.number} in the {first.phase} pass"
    return f"not safe for provenance: the first difference is in the {at}{where}"
