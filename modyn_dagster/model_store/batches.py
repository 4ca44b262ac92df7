"""Work worth handing to a thread: several small tensors at once, or one large one."""

from collections.abc import Callable, Iterable, Iterator
from typing import Final, TypeVar

_Item = TypeVar("_Item")

#: Bytes. A thread needs some 100 us for them, and handing them over takes some 30.
_ENOUGH: Final = 1 << 20


def batches(items: Iterable[_Item], n_bytes: Callable[[_Item], int]) -> Iterator[list[_Item]]:
    """Neighbours together, in order, until they are enough."""
    batch: list[_Item] = []
    total = 0
    for item in items:
        batch.append(item)
        total += n_bytes(item)
        if total >= _ENOUGH:
            yield batch
            batch, total = [], 0
    if batch:
        yield batch
