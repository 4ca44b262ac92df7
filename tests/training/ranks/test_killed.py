"""Ranks that are killed or hang at any step: the attempt ends within seconds, and the next one goes on to the same bits."""

import os
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch

from modyn_dagster.distributed.processes.group import LocalGroup
from modyn_dagster.distributed.protocols import Rank
from modyn_dagster.errors import WorkerLost
from modyn_dagster.reproducibility.randomness import rng_for
from modyn_dagster.training import (
    CheckpointFile,
    FastPath,
    PreviousModel,
    Task,
    TrainedModel,
    TrainingProgress,
    train,
    train_in_ranks,
)
from modyn_dagster.training.team.team import team_of
from tests.training.ranks.together import Case, Ended, rows, together
from tests.training.resumable import RESUMABLE, resumable

pytestmark = [pytest.mark.process, pytest.mark.soak("distributed")]

#: Of a rank for another one that hangs.
TIMEOUT = 3.0
#: Of a rank for another one that is killed, which nobody waits for.
LONG = 300.0


@pytest.fixture(autouse=True)
def own_code(user_code: str) -> None:
    """Some of the trainings name it."""


def struck(rank: Rank, strike: tuple[Case, int, int, int, float]) -> None:
    """Train until the victim gets a signal at a step."""
    case, victim, step, number, timeout = strike

    def told(progress: TrainingProgress) -> None:
        if (rank.index, progress.step) == (victim, step):
            os.kill(os.getpid(), number)

    with team_of(rank, torch.device("cpu"), timeout=timeout) as team:
        given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p", "team": team}
        calibrate = rows(40, 2).data() if case.spec.early_stopping is not None else None
        weights = torch.linspace(0.5, 2, case.n, dtype=torch.float64).numpy()
        data = rows(case.n, 1).data(weights, FastPath(cache_bytes=case.cache_bytes))
        file = None if case.checkpoint is None else CheckpointFile(case.checkpoint)
        train(case.spec, data, calibrate=calibrate, checkpoint=file, progress=told, **given)


@pytest.mark.parametrize(("ranks", "names"), [(2, tuple(RESUMABLE)), (3, ("accumulation", "dlis", "rho"))], ids=["2", "3"])
def test_every_training_goes_on_where_it_was_broken_off(ranks: int, names: Sequence[str], tmp_path: Path) -> None:
    cases: list[Case] = []
    for name in names:
        # Two views of a sample are refused with dropout in ranks.
        fields = {"model": {"name": "mlp", "hidden": [8]}} if name == "contrastive" else {}
        spec, at = resumable(name, ranks=ranks, **fields), int(rng_for(ranks, name).integers(2, 6))
        file = tmp_path / name
        cases += [Case(spec), Case(spec), Case(spec, checkpoint=file, stop=at), Case(spec, checkpoint=file)]
    ends = iter(together(cases, ranks))
    for name in names:
        whole, again, broken, resumed = (next(ends) for _ in range(4))
        assert {ended.bits for ended in (*whole, *again, *resumed)} == {whole[0].bits}, name
        assert all(ended.model is None and ended.error is None for ended in broken), name
        assert len(resumed[0].keys) < len(whole[0].keys), name


@pytest.mark.parametrize("strategy", ["replicated", "fsdp"])
@pytest.mark.parametrize(("name", "victim"), [("average_and_clipping", 0), ("dlis", 1), ("rho", 0), ("restless", 1)])
def test_the_attempt_after_a_kill_ends_with_the_bits_of_no_kill(name: str, victim: int, strategy: str, tmp_path: Path) -> None:
    case = Case(resumable(name, ranks=2, strategy=strategy), checkpoint=tmp_path / "c")
    step, began = int(rng_for(victim, name).integers(2, 9)), time.monotonic()
    with pytest.raises(WorkerLost, match=rf"rank {victim} of 2: a worker process died \(its process was killed by signal 9\)"):
        LocalGroup().run(struck, (case, victim, step, int(signal.SIGKILL), LONG), 2)
    # Not a measurement: a wait for the other rank would be longer.
    assert time.monotonic() - began < LONG / 2
    assert case.checkpoint is not None
    assert case.checkpoint.is_file()
    (whole, _), (resumed, other) = together([Case(case.spec), case])
    assert resumed.bits == other.bits == whole.bits
    assert 0 < len(resumed.keys) < len(whole.keys)


def test_a_rank_that_hangs_ends_the_attempt() -> None:
    case = Case(resumable("plain", ranks=2))
    with pytest.raises(WorkerLost, match=f"another rank ended, or did not answer within {TIMEOUT:g} s"):
        LocalGroup().run(struck, (case, 1, 3, int(signal.SIGSTOP), TIMEOUT), 2)


def test_a_rank_whose_partner_never_comes_ends_the_attempt(tmp_path: Path) -> None:
    with (
        pytest.raises(WorkerLost, match="did not answer within 1 s"),
        team_of(Rank(0, 2, f"file://{tmp_path}/meeting"), torch.device("cpu"), timeout=1.0),
    ):
        pass


def trained(case: Case, **options: Any) -> TrainedModel:
    given: dict[str, Any] = {"task": Task("class"), "seed": 7, "threads": 1, "source": "pipeline p"}
    weights = torch.linspace(0.5, 2, case.n, dtype=torch.float64).numpy()
    return train_in_ranks(LocalGroup(), case.spec, rows(case.n, 1).data(weights, FastPath(cache_bytes=0)), **given | options)


def test_a_group_of_processes_and_a_group_of_forks_train_the_same_model() -> None:
    case = Case(resumable("momentum_and_schedule", ranks=2))
    assert Ended(trained(case)).bits == together([case])[0][0].bits


def test_a_second_model_goes_on_with_the_first_and_its_optimizer() -> None:
    fields: dict[str, Any] = {"use_previous_model": True, "carry_optimizer": True, "ranks": 2}
    case = Case(resumable("momentum_and_schedule", **fields))
    first = trained(case)
    assert first.optimizers is not None
    previous = PreviousModel(first.state_dict, first.architecture, first.optimizers)
    second = trained(case, previous=previous)
    assert Ended(second).bits != Ended(first).bits
    assert Ended(trained(case, previous=previous)).bits == Ended(second).bits
    assert Ended(trained(case, initial=first.state_dict)).bits != Ended(first).bits


def test_an_error_of_a_training_is_that_of_one_process() -> None:
    case = Case(resumable("plain", ranks=2, optimizer={"name": "sgd", "lr": 1e30}))
    with pytest.raises(Exception, match=r"the loss is .* lower the learning rate"):
        trained(case)
