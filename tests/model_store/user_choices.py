"""Choices of storage strategies as users write them: good ones, and one for each law that they break."""

import itertools
import random
from typing import Any

from modyn_dagster.model_store.strategies.estimates import Estimate
from modyn_dagster.model_store.strategies.settings import Snapshot


def smallest() -> Any:
    return lambda offers, model: min(offers, key=lambda offer: offer.n_bytes)


def whole_every(models: int) -> Any:
    """A whole model every so many, changed layers in between."""

    def choose(offers: Any, model: Any) -> Any:
        changed = [offer for offer in offers if offer.kind == "changed_layers"]
        return changed[0] if changed and model.since_full % models else offers[0]

    return choose


def returning(value: Any) -> Any:
    return lambda offers, model: value


def made_up() -> Any:
    return lambda offers, model: Estimate(Snapshot(compress=True), 0, 0, 0)


def failing() -> Any:
    def choose(offers: Any, model: Any) -> Any:
        raise KeyError("no offer")

    return choose


def by_chance() -> Any:
    return lambda offers, model: random.choice(offers)  # noqa: S311 - chance is the fault


def in_turn() -> Any:
    calls = itertools.count()
    return lambda offers, model: offers[next(calls) % len(offers)]
