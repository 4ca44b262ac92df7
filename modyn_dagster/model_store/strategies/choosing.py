"""Choice of a strategy for a model: the cheapest by estimates, or that of a function of the user's.

Adaptive: bytes, time to save and time to recover each have a price, within a limit on the time to recover. Where no estimate,
with a margin for a busy machine, is below that limit, a plain snapshot is stored: nothing is faster to read. Source: the choice
that MMlib leaves as future work (Strassenburg et al., EDBT 2022, section 6).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, cast

from modyn_dagster.errors import ConfigError
from modyn_dagster.imports import made_by_factory
from modyn_dagster.model_store.format.hash_tree import ModelId
from modyn_dagster.model_store.format.metadata import ModelMetadata
from modyn_dagster.model_store.strategies.estimates import Estimate, estimates
from modyn_dagster.model_store.strategies.settings import Adaptive, Custom, Snapshot, Strategy
from modyn_dagster.model_store.strategies.writer import ModelWriter

# Factor by which estimates on a busy machine may be too low.
_MARGIN: Final = 1.5
_SOURCE: Final = "model store"


@dataclass(frozen=True, slots=True)
class Situation:
    """Model to store, for a choice of the user's.

    Attributes:
        n_bytes: of all its tensors.
        base: id of the model that it derives from; None without one in the store.
        since_full: models on the chain to the last one that is stored whole, this one included; 0 without a base.
    """

    n_bytes: int
    base: ModelId | None
    since_full: int


class StorageChoice(Protocol):
    """Function of the user's that chooses how a model is stored. Whatever it chooses, the model comes back bit for bit."""

    def __call__(self, offers: Sequence[Estimate], model: Situation, /) -> Estimate:
        """One of the offers, of which the first is a plain snapshot. Figures are measured, so they vary from call to call."""


def storage_choice(factory: str, config: Mapping[str, Any], *, source: str, field: str = "model_store") -> StorageChoice:
    """Function that ``factory(**config)`` returns.

    Args:
        factory: import path ``package.module:function``.
        config: keyword arguments of the block.
        source: file or pipeline of the block, for errors.
        field: of the block there.

    Raises:
        ImportPathError: the path cannot be imported, or its result cannot be called.
        ConfigError: the factory refused its config.
    """
    what = "a function of offers and a model"
    return cast(StorageChoice, made_by_factory(factory, config, what=what, source=source, field=field))


def choose(writer: ModelWriter, strategy: Adaptive | Custom, metadata: ModelMetadata) -> tuple[Strategy, str]:
    """The chosen strategy, and the reason with the figures behind it. Raises ``ConfigError`` for a user's choice that fails."""
    offers = list(estimates(writer, strategy.delta, metadata))
    if isinstance(strategy, Adaptive):
        return _without_copies(writer, *_cheapest(strategy, offers))
    since_full = 0 if writer.base is None else writer.base.metadata.since_full + 1
    situation = Situation(writer.n_bytes, None if writer.base is None else writer.base.id, since_full)
    chosen = chosen_offer(strategy.choose, strategy.name, offers, situation)
    return chosen.strategy, f"{strategy.name} chose {chosen} of: " + "; ".join(map(str, offers))


def chosen_offer(choice: StorageChoice, name: str, offers: Sequence[Estimate], model: Situation) -> Estimate:
    """Call a function of the user's, and check what it returns. Raises ``ConfigError``."""
    try:
        chosen = choice(tuple(offers), model)
    except Exception as error:
        raise ConfigError(_SOURCE, "factory", name, f"failed: {type(error).__name__}: {error}") from error
    if not any(chosen is offer for offer in offers):
        raise ConfigError(_SOURCE, "factory", name, f"its function must return one of the {len(offers)} offers, not {chosen!r}")
    return chosen


def _without_copies(writer: ModelWriter, strategy: Strategy, reason: str) -> tuple[Strategy, str]:
    """Refer to other models for tensors that they hold, where a plain snapshot would mostly copy these, as with a frozen base."""
    if not isinstance(strategy, Snapshot) or strategy.compress:
        return strategy, reason
    held = sum(part.leaf.n_bytes for part in writer.parts(strategy) if part.entry is not None)
    if held == 0 or 2 * held < writer.n_bytes:
        return strategy, reason
    return Snapshot(compress=True), f"{reason}; {held / writer.n_bytes:.0%} of the bytes are in other models"


def _cheapest(adaptive: Adaptive, offers: Sequence[Estimate]) -> tuple[Strategy, str]:
    limit, prices = adaptive.max_recovery_seconds, adaptive.prices
    within = [offer for offer in offers if limit is None or offer.recover_seconds * _MARGIN <= limit]

    def cost(estimate: Estimate) -> float:
        return prices.cost(estimate.n_bytes, estimate.save_seconds, estimate.recover_seconds)

    ranked = sorted(within, key=cost)
    reason = "adaptive, cheapest first: " + "; ".join(f"{estimate}: {cost(estimate):.3g}" for estimate in ranked)
    if not within:
        reason = "adaptive, nothing to decode or to train, for no strategy is sure to be quick enough"
    if len(within) < len(offers):
        reason += f"; above {limit} s: " + ", ".join(str(estimate) for estimate in offers if estimate not in within)
    return (ranked[0].strategy if ranked else Snapshot(compress=False)), reason
