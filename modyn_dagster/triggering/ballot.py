"""The votes inside an ensemble since the last trigger, and how they are shown."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from modyn_dagster.keys import ORIGIN

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
