"""Which model holds a tensor: hints, each checked against the model's header before it is believed.

Losing them loses nothing but the sharing of tensors with models saved before; ``rebuild`` makes them again.
"""

from collections.abc import Callable, Iterable

from modyn_dagster.errors import CorruptFile, UnknownModel
from modyn_dagster.model_store.hash_tree import ModelId
from modyn_dagster.model_store.hints import ENTRY, Hints
from modyn_dagster.model_store.stored import Stored


class TensorIndex:
    """The hints of one store, as far as they were read."""

    def __init__(self, hints: Hints) -> None:
        self._hints = hints
        self._homes: dict[bytes, bytes] = {}
        # Models that hints name in vain, until others may have come.
        self._gone: set[bytes] = set()

    def find(self, leaf: str, model_of: Callable[[ModelId], Stored]) -> ModelId | None:
        """A model whose file holds the tensor with this hash, or None."""
        home = self._homes.get(bytes.fromhex(leaf))
        if home is None or home in self._gone:
            return None
        try:
            found = model_of(home.hex())
        except (UnknownModel, CorruptFile):
            self._gone.add(home)
            return None
        return found.id if leaf in found.held else None

    def refresh(self) -> None:
        """Read what was added since, also by others."""
        self._gone.clear()
        content, begins_again = self._hints.new()
        if begins_again:
            self._homes = {}
        for start in range(0, len(content), ENTRY):
            self._homes[content[start : start + ENTRY // 2]] = content[start + ENTRY // 2 : start + ENTRY]

    def add(self, leaves: Iterable[str], model: ModelId) -> None:
        """Remember that the file of ``model`` holds these."""
        if entries := b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf in leaves):
            self._hints.add(entries)

    def rebuild(self, entries: Iterable[tuple[str, ModelId]]) -> None:
        """Start again with these pairs of tensor and model."""
        self._hints.replace(b"".join(bytes.fromhex(leaf) + bytes.fromhex(model) for leaf, model in entries))
