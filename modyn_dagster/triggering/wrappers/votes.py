"""Votes of an ensemble: the rule that counts them, and the ballot since the last trigger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.triggers.base import AtLeast
from modyn_dagster.spec.triggers.trigger import CustomRule

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


#: Ways to have voted that are remembered; with scores in their reasons hardly two are alike.
_REMEMBERED: Final = 64


@dataclass(frozen=True, slots=True)
class Shown:
    """What a decision says of the votes; shared by decisions, never changed.

    Attributes:
        votes: whether each member has voted.
        reason: for people.
        details: the votes as a decision's details.
    """

    votes: dict[str, bool]
    reason: str
    details: dict[str, Any]


class Ballot:
    """Which members have voted, for which keys, and why.

    What a decision shows of it is made when a decision asks, and remembered for a while: of most decisions of an ensemble it
    is the same.

    Attributes:
        voted: by member, in the order of their first votes: the reason it gave for the largest key it voted for.
        key: the largest key of all; ``ORIGIN`` without votes.
    """

    __slots__ = ("_keys", "_known", "_names", "_nobody", "_rule", "_shown", "key", "voted")

    def __init__(self, names: Sequence[str], rule: str) -> None:
        self._names = list(names)
        self._rule = rule
        self._known: dict[tuple[tuple[str, str], ...], Shown] = {}
        self._keys: dict[str, int] = {}
        self.voted: dict[str, str] = {}
        self.key = ORIGIN
        self._nobody = self._made(())
        self._shown: Shown | None = self._nobody

    def clear(self) -> None:
        """No votes."""
        self.voted, self._keys = {}, {}
        self.key = ORIGIN
        self._shown = self._nobody

    def take(self, name: str, key: int, why: str) -> None:
        """A vote; of a member's votes the one with the largest key counts."""
        before = self._keys.get(name)
        if before is not None and key <= before:
            return
        self._keys[name] = key
        self.key = max(self.key, key)
        if self.voted.get(name) != why:
            self.voted[name] = why
            self._shown = None

    def show(self) -> Shown:
        """What a decision says of the votes as they are."""
        shown = self._shown
        if shown is None:
            said = tuple(self.voted.items())
            shown = self._shown = self._known.get(said) or self._remembered(said)
        return shown

    def as_json(self) -> list[list[Any]]:
        """Name, key and reason of every vote, in order."""
        return [[name, self._keys[name], why] for name, why in self.voted.items()]

    def restore(self, votes: Iterable[Sequence[Any]]) -> None:
        """Take up what ``as_json`` gave."""
        self.clear()
        for name, key, why in votes:
            self.take(name, key, why)

    def _remembered(self, said: tuple[tuple[str, str], ...]) -> Shown:
        if len(self._known) >= _REMEMBERED:
            self._known.clear()
        return self._known.setdefault(said, self._made(said))

    def _made(self, said: tuple[tuple[str, str], ...]) -> Shown:
        voted = dict(said)
        votes = {name: name in voted for name in self._names}
        text = ", ".join(f"{name} ({why})" for name, why in said) or "none"
        return Shown(votes, f"{len(said)} of {len(self._names)} voted, {self._rule}: {text}", {"votes": votes})
