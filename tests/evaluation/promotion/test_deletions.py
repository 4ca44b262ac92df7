"""A gate after a deletion: the champion that follows a withdrawn one, and tests that begin anew with a model made again."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.evaluation.promotion.deletions import with_remade, without_withdrawn
from modyn_dagster.evaluation.promotion.state import Candidate, GateState, Trial, Watch
from tests.evaluation.promotion.memory import MemoryEvidence, Model, stream_of
from tests.evaluation.promotion.walks import WALKS, Walk, rules_of, sure, walked


def test_a_withdrawn_champion_is_followed_by_the_newest_earlier_one_or_by_the_newest_candidate() -> None:
    stream = stream_of([80] * 5, [(0, 0.1), (0, 0.95), (2, 0.1)])

    def ends(**withdrawn: int) -> tuple[int | None, list[str]]:
        models: list[Model] = [replace(each, withdrawn=withdrawn.get(f"m{each.trigger}", 99)) for each in stream.models]
        walk = walked(sure(confidence=0.9), replace(stream, models=tuple(models)))
        return walk.end.champion, [each.actor for each in walk.changes if each.state == "champion"]

    assert ends(m1=3) == (0, ["gate", "gate", "deletion"])
    assert ends(m0=3, m1=3) == (2, ["gate", "gate", "deletion"])
    assert ends(m0=3, m1=3, m2=3) == (None, ["gate", "gate"])


def test_candidates_that_do_not_load_follow_no_champion() -> None:
    stream = stream_of([10] * 5, [(0, 0.5), (0, 0.5), (1, 0.5), (2, 0.5)])
    trial = Trial(1, 0, 0, 0, None, 1, 0, None)
    waiting = tuple(Candidate(each, "shadow", replace(trial, number=each)) for each in (1, 2, 3))
    state = GateState(champion=0, candidates=waiting, seen=3, n_tests=3)

    def after(*lost: int) -> tuple[GateState, list[tuple[int, str]]]:
        models = [replace(each, lost=0 if each.trigger in lost else 99) for each in stream.models[1:]]
        evidence = MemoryEvidence(replace(stream, models=tuple(models)), 4)
        found, changes = without_withdrawn(rules_of().spec, state, evidence)
        return found, [(each.trigger, each.state) for each in changes]

    found, changes = after(3)
    assert changes == [(0, "retired"), (3, "rejected"), (2, "champion"), (1, "superseded")]
    assert (found.champion, found.former, found.candidates) == (2, (), ())
    found, changes = after(1, 2, 3)
    assert changes == [(0, "retired"), (3, "rejected"), (2, "rejected"), (1, "rejected")]
    assert (found.champion, found.candidates) == (None, ())


@given(WALKS, st.data())
def test_a_model_made_again_leaves_no_test_that_has_counted_the_old_one(walk: Walk, data: st.DataObject) -> None:
    look = data.draw(st.sampled_from(walk.looks))
    state, known = look.after, [each for each in look.evidence.models() if each <= look.after.seen]
    trigger = data.draw(st.sampled_from(sorted(known) or [0]))
    after, changes = with_remade(walk.rules.spec, state, trigger, look.evidence)
    assert (after.champion, after.former, after.seen) == (state.champion, state.former, state.seen)
    numbers = [each.trial.number for each in after.candidates if each.trial is not None]
    assert len(set(numbers)) == len(numbers)
    for before, each in zip(state.candidates, after.candidates, strict=True):
        if before.trial is None or trigger not in (before.trigger, before.trial.champion):
            assert each == before
            continue
        if each.trial is None:
            # Where one had passed, there may be no room for another test.
            assert (before.state, each.state, after.n_tested) == ("passed", "candidate", walk.rules.spec.shadow.max)
            continue
        assert (each.state, each.trial.n, each.trial.looks, dict(each.trial.numbers)) == ("shadow", 0, 0, {})
        assert each.trial.begun == each.trial.window_begun == look.batch
        assert each.trial.number > state.n_tests
        assert [(c.before, c.state) for c in changes if c.trigger == each.trigger] == [
            (before.state, "candidate"),
            ("candidate", "shadow"),
        ]
    own = [(each.before, each.state, each.actor) for each in changes if each.trigger == state.champion]
    assert own == ([("champion", "champion", "deletion")] if trigger == state.champion else [])


def test_bad_intervals_of_the_old_model_count_no_more() -> None:
    evidence = MemoryEvidence(stream_of([10] * 5, [(0, 0.5), (0, 0.5), (0, 0.5)]), 4)
    state = GateState(champion=1, former=(0,), seen=2, candidates=(Candidate(2),), watch=Watch(7, 2))

    def n_bad(trigger: int, **limit: float) -> int:
        back = rules_of(rollback=limit).spec
        after, _ = with_remade(back, state, trigger, evidence)
        assert after.watch.judged_until == 7
        return after.watch.n_bad

    assert [n_bad(each, below=0.6) for each in (0, 1, 2)] == [2, 0, 2]
    # The champion before is what a drop is measured against.
    assert [n_bad(each, max_drop=0.1) for each in (0, 1, 2)] == [0, 0, 2]
