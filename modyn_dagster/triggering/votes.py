"""How an ensemble counts: a rule over the votes of its members."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.spec.trigger import AtLeast, CustomRule

#: Whether members that voted so far, by name, are enough.
VoteFunction = Callable[[dict[str, bool]], bool]


@dataclass(frozen=True, slots=True)
class VoteRule:
    """When votes are enough.

    Attributes:
        name: for people, for example ``majority``.
        needed: how many votes are enough; None for a rule of the user's.
        asks_user: the user's rule, asked where ``needed`` is None.
    """

    name: str
    needed: int | None
    asks_user: VoteFunction

    def __repr__(self) -> str:
        return self.name


def needed_of(rule: str | AtLeast, members: int) -> int:
    """How many of so many must agree; a majority is more than half."""
    named = {"majority": members // 2 + 1, "any": 1, "all": members}
    return named[rule] if isinstance(rule, str) else rule.at_least


def vote_rule(rule: str | AtLeast | CustomRule, members: int, *, source: str = "trigger") -> VoteRule:
    """The rule of an ensemble of so many members.

    >>> vote_rule("majority", 4).needed
    3
    """
    if isinstance(rule, CustomRule):
        return VoteRule(rule.factory, None, _custom(rule, source))
    needed = needed_of(rule, members)
    name = rule if isinstance(rule, str) else f"at least {rule.at_least}"
    return VoteRule(name, needed, lambda votes: sum(votes.values()) >= needed)


def _custom(rule: CustomRule, source: str) -> VoteFunction:
    """The user's callable with its config; anything but a bool it returns is an error naming its path."""
    function = import_callable(rule.factory, source=source, field="rule.factory")
    config: Mapping[str, Any] = rule.config

    def enough(votes: dict[str, bool]) -> bool:
        try:
            answer = function(dict(votes), **config)
        except Exception as error:
            refused = f"{rule.factory} failed on votes {votes}: {type(error).__name__}: {error}"
            raise ConfigError(source, "rule.config", rule.config, refused) from error
        if not isinstance(answer, bool):
            raise ImportPathError(source, "rule.factory", rule.factory, f"must return a bool, not {type(answer).__name__}")
        return answer

    return enough
