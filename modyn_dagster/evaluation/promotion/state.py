"""State of a gate: the champion, the candidates with their tests, and the watch over the champion's score. JSON in, JSON out."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, Literal, Self

State = Literal["candidate", "shadow", "passed", "champion", "retired", "rejected", "superseded"]

MICROSECONDS: Final = 1_000_000

Action = Literal["promote", "reject", "rollback"]

#: Actors of changes that no person makes.
GATE: Final = "gate"
ROLLBACK: Final = "rollback"
DELETION: Final = "deletion"


@dataclass(frozen=True, slots=True)
class Trial:
    """Test of a candidate against one champion, on samples that arrive after its begin.

    Attributes:
        number: among the tests of the gate, from 1 on; it decides the share of error.
        champion: ordinal of the champion's trigger.
        after: only samples with a larger key count.
        begun: ordinal of the batch after which the test began.
        since: stream time there, microseconds since 1970; None where no sample had a time.
        window: number of the window of evidence, from 1 on.
        window_begun, window_since: as ``begun`` and ``since``, of that window: pairs belong to the window in which they enter.
        n: pairs of all windows.
        looks: looks of this window.
        numbers: what the test keeps of the pairs of this window.
    """

    number: int
    champion: int
    after: int
    begun: int
    since: int | None
    window: int
    window_begun: int
    window_since: int | None
    n: int = 0
    looks: int = 0
    numbers: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Candidate:
    """Model that is neither the champion nor decided about: it waits, is tested, or has passed and waits for a person."""

    trigger: int
    state: State = "candidate"
    trial: Trial | None = None


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch over the champion's score.

    Attributes:
        judged_until: end of the last interval that was judged, microseconds since 1970; None before the first.
        n_bad: bad intervals in a row.
    """

    judged_until: int | None = None
    n_bad: int = 0


@dataclass(frozen=True, slots=True)
class GateState:
    """State after a look at a batch. Models go by the ordinals of their triggers.

    Attributes:
        champion: None before the first model.
        since: stream time at which it became the champion, microseconds since 1970.
        former: champions before, the newest last; a rollback goes to these.
        candidates: in the order of their triggers.
        seen: last trigger that the gate knows; -1 before the first.
        n_tests: tests begun so far.
        quiet_until: stream time until which nothing is rolled back automatically.
        watch: over the champion.
    """

    champion: int | None = None
    since: int | None = None
    former: tuple[int, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    seen: int = -1
    n_tests: int = 0
    quiet_until: int | None = None
    watch: Watch = Watch()

    def candidate(self, trigger: int) -> Candidate | None:
        """Return the candidate of a trigger; None where its model is none."""
        return next((each for each in self.candidates if each.trigger == trigger), None)

    @property
    def n_tested(self) -> int:
        """Number of candidates under test; one that has passed and waits for a person is none of them."""
        return sum(each.state == "shadow" for each in self.candidates)

    def without(self, trigger: int) -> Self:
        """Return the state without the candidate of a trigger."""
        return replace(self, candidates=tuple(each for each in self.candidates if each.trigger != trigger))

    def with_candidate(self, changed: Candidate) -> Self:
        """Return the state with another state of a candidate."""
        found = tuple(changed if each.trigger == changed.trigger else each for each in self.candidates)
        return replace(self, candidates=found)

    def to_json(self) -> dict[str, Any]:
        """Fields as JSON values; numbers come back with the same bits."""
        return asdict(self)

    @classmethod
    def of_json(cls, content: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned; the state before the first batch from an empty mapping.

        >>> state = GateState(champion=3, candidates=(Candidate(4, "shadow", Trial(1, 3, 9, 0, None, 1, 0, None)),))
        >>> GateState.of_json(state.to_json()) == state, GateState.of_json({}) == GateState()
        (True, True)
        """
        values = dict(content)
        values["former"] = tuple(values.get("former", ()))
        values["candidates"] = tuple(
            Candidate(each["trigger"], each["state"], None if each["trial"] is None else Trial(**each["trial"]))
            for each in values.get("candidates", ())
        )
        values["watch"] = Watch(**values.get("watch", {}))
        return cls(**values)


@dataclass(frozen=True, slots=True)
class Change:
    """Change of the state of one model.

    Attributes:
        trigger: ordinal of its trigger.
        before: None for a model that is new to the gate.
        state: afterwards.
        reason: one sentence.
        actor: ``gate``, ``rollback``, ``deletion``, or the name of a person.
        verdict: of the test, as JSON; None where none was made.
        action: of a person; None for a change by rule, and for one that follows from an action.
    """

    trigger: int
    before: State | None
    state: State
    reason: str
    actor: str = GATE
    verdict: Mapping[str, Any] | None = None
    action: Action | None = None
