"""The laws of storage choices of the user's own: ``check_choice``."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from modyn_dagster.errors import LawBroken
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.strategies.choosing import Situation, StorageChoice, chosen_offer
from modyn_dagster.model_store.strategies.estimates import Estimate
from modyn_dagster.model_store.strategies.settings import ChangedLayers, Delta, Retrain, Snapshot
from modyn_dagster.reproducibility.global_randomness import with_global_seed

_AGREE: Final = "equal calls agree"
_BASE: Final = ModelId("0" * 32)


def check_choice(factory: Callable[..., StorageChoice], config: Mapping[str, Any] | None = None) -> None:
    """Check that a choice of storage strategies obeys the laws of choices.

    1. It returns one of its offers: for small and large models, with and without a base or a recipe to train again.
    2. Equal calls agree: called again, and made again, whatever the global random states, it chooses the same.

    Args:
        factory: of the pipeline's block.
        config: its keyword arguments.

    Raises:
        LawBroken: names the model.
        ConfigError: the function fails, or returns anything else.
    """
    made = [factory(**(config or {})) for _ in range(2)]
    for name, offers, model in _cases():
        chosen = chosen_offer(made[0], "the function", offers, model)
        for number, choice in enumerate((made[0], made[1])):
            again = with_global_seed(number, partial(chosen_offer, choice, "the function", offers, model))
            if again is not chosen:
                raise LawBroken(_AGREE, name, None, f"{chosen}, then {again}")


def _cases() -> Iterator[tuple[str, Sequence[Estimate], Situation]]:
    for n_bytes in (1_000, 1_000_000, 10_000_000_000):
        plain = [Estimate(Snapshot(compress=False), n_bytes, n_bytes / 1e9, n_bytes / 2e9)]
        packed = [Estimate(Snapshot(compress=True), 0.8 * n_bytes, n_bytes / 5e8, n_bytes / 1e9)] if n_bytes >= 1 << 20 else []
        yield f"of {n_bytes:,} bytes without a base", [*plain, *packed], Situation(n_bytes, None, 0)
        based = [
            Estimate(each, share * n_bytes, n_bytes / 4e8, n_bytes / 1e9)
            for each, share in ((ChangedLayers(), 0.5), (Delta(), 0.3))
        ]
        for since_full in (1, 9):
            name = f"of {n_bytes:,} bytes, {since_full} after a whole one"
            yield name, [*plain, *packed, *based], Situation(n_bytes, _BASE, since_full)
        trained = [Estimate(Retrain(), 8_192, 0.005, 60.0)]
        yield f"of {n_bytes:,} bytes with a recipe", [*plain, *packed, *based, *trained], Situation(n_bytes, _BASE, 1)
