"""Votes of an ensemble: rule that counts them, and ballot since the last trigger."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.errors import ConfigError, ImportPathError
from modyn_dagster.imports import import_callable
from modyn_dagster.keys import ORIGIN
from modyn_dagster.spec.triggers.base import AtLeast
from modyn_dagster.spec.triggers.trigger import CustomRule

#: Decides on the votes of members by name: True for enough votes.
VoteFunction = Callable[[dict[str, bool]], bool]


@dataclass(frozen=True, slots=True)
class VoteRule:
    """Rule that says which votes are enough.

    Attributes:
        name: for people, for example ``majority``.
        needed: least number of votes; None for a custom rule.
        accepts: decides on the votes where ``needed`` is None.
    """

    name: str
    needed: int | None
    accepts: VoteFunction

    def __repr__(self) -> str:
        return self.name


def needed_of(rule: str | AtLeast, members: int) -> int:
    """Number of members that must agree; a majority is more than half."""
    numbers = {"majority": members // 2 + 1, "any": 1, "all": members}
    return numbers[rule] if isinstance(rule, str) else rule.at_least


def vote_rule(rule: str | AtLeast | CustomRule, members: int, *, source: str = "trigger") -> VoteRule:
    """Vote rule of an ensemble of so many members.

    >>> vote_rule("majority", 4).needed
    3
    """
    if isinstance(rule, CustomRule):
        return VoteRule(rule.factory, None, _custom_rule(rule, source))
    needed = needed_of(rule, members)
    name = rule if isinstance(rule, str) else f"at least {rule.at_least}"
    return VoteRule(name, needed, lambda votes: sum(votes.values()) >= needed)


def _custom_rule(rule: CustomRule, source: str) -> VoteFunction:
    """Callable of the user with its config; any answer but a bool is an error that names its import path."""
    function = import_callable(rule.factory, source=source, field="rule.factory")
    config: Mapping[str, Any] = rule.config

    def enough(votes: dict[str, bool]) -> bool:
        try:
            answer = function(dict(votes), **config)
        except Exception as error:
            reason = f"{rule.factory} failed on votes {votes}: {type(error).__name__}: {error}"
            raise ConfigError(source, "rule.config", rule.config, reason) from error
        if not isinstance(answer, bool):
            raise ImportPathError(source, "rule.factory", rule.factory, f"must return a bool, not {type(answer).__name__}")
        return answer

    return enough


#: Number of ballot views kept; with scores in the reasons hardly two ballots are alike.
_MOST_VIEWS: Final = 64


@dataclass(frozen=True, slots=True)
class BallotView:
    """Votes as a decision reports them; shared by decisions, never changed.

    Attributes:
        votes: True for each member that has voted.
        reason: for people.
        details: votes as details of a decision.
    """

    votes: dict[str, bool]
    reason: str
    details: dict[str, Any]


class Ballot:
    """Votes of the members, with keys and reasons.

    Views for decisions are built on demand and kept for a while, because most decisions of an ensemble share one.

    Attributes:
        voted: reason of each member's vote for its largest key, in the order of first votes.
        key: largest key of all votes; ``ORIGIN`` without votes.
    """

    __slots__ = ("_empty", "_keys", "_names", "_rule", "_view", "_views", "key", "voted")

    def __init__(self, names: Sequence[str], rule: str) -> None:
        self._names = list(names)
        self._rule = rule
        self._views: dict[tuple[tuple[str, str], ...], BallotView] = {}
        self._keys: dict[str, int] = {}
        self.voted: dict[str, str] = {}
        self.key = ORIGIN
        self._empty = self._build_view(())
        self._view: BallotView | None = self._empty

    def clear(self) -> None:
        """Remove all votes."""
        self.voted, self._keys = {}, {}
        self.key = ORIGIN
        self._view = self._empty

    def take(self, name: str, key: int, why: str) -> None:
        """Add a vote; of several votes of a member the one with the largest key counts."""
        earlier = self._keys.get(name)
        if earlier is not None and key <= earlier:
            return
        self._keys[name] = key
        self.key = max(self.key, key)
        if self.voted.get(name) != why:
            self.voted[name] = why
            self._view = None

    def view(self) -> BallotView:
        """Votes for a decision."""
        view = self._view
        if view is None:
            voted = tuple(self.voted.items())
            view = self._view = self._views.get(voted) or self._add_view(voted)
        return view

    def as_json(self) -> list[list[Any]]:
        """Name, key and reason of every vote, in order."""
        return [[name, self._keys[name], why] for name, why in self.voted.items()]

    def restore(self, votes: Iterable[Sequence[Any]]) -> None:
        """Restore the votes of ``as_json``."""
        self.clear()
        for name, key, why in votes:
            self.take(name, key, why)

    def _add_view(self, voted: tuple[tuple[str, str], ...]) -> BallotView:
        if len(self._views) >= _MOST_VIEWS:
            self._views.clear()
        return self._views.setdefault(voted, self._build_view(voted))

    def _build_view(self, voted: tuple[tuple[str, str], ...]) -> BallotView:
        names = dict(voted)
        votes = {name: name in names for name in self._names}
        text = ", ".join(f"{name} ({why})" for name, why in voted) or "none"
        return BallotView(votes, f"{len(voted)} of {len(self._names)} voted, {self._rule}: {text}", {"votes": votes})
