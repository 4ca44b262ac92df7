"""The probe finds the first layer that differs, whichever call of it, and nothing where nothing does."""

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from modyn_dagster.errors import CorruptFile, StorageError
from modyn_dagster.model_store import Environment
from modyn_dagster.model_store.probe.recording import probe, summarise
from modyn_dagster.model_store.probe.report import Difference, Summary, compare

INPUTS = (torch.linspace(-1, 1, 24).reshape(4, 6),)


def loss(outputs: Tensor) -> Tensor:
    return outputs.square().mean()


class Unsteady(nn.Module):
    """Adds the system's entropy in one of its calls: to what comes out, or to what flows back."""

    def __init__(self, at: int, backward: bool = False) -> None:
        super().__init__()
        self.at, self.backward, self.calls = at, backward, 0

    def forward(self, x: Tensor) -> Tensor:
        call, self.calls = self.calls, self.calls + 1
        noise = random.SystemRandom().random()
        if call != self.at:
            return x * 1
        if not self.backward:
            return x + noise
        out = x * 1
        if x.requires_grad:
            x.register_hook(lambda gradient: gradient * (1 + noise))  # type: ignore[no-untyped-call]  # torch has no type for it
        return out


class Twice(nn.Module):
    """Uses one layer two times."""

    def __init__(self, unsteady: nn.Module) -> None:
        super().__init__()
        self.first, self.again, self.last = nn.Linear(6, 6), unsteady, nn.Linear(6, 2)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(self.again(self.again(self.first(x))))
        return found


MODELS = {
    "linear with dropout": lambda: nn.Sequential(nn.Linear(6, 9), nn.Dropout(), nn.Linear(9, 2)),
    "batch norm": lambda: nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.ReLU(inplace=True), nn.Linear(5, 1)),
    "attention": lambda: nn.TransformerEncoderLayer(6, 2, 8, batch_first=True),
    "recurrent": lambda: Last(nn.GRU(6, 4, batch_first=True)),
    "used twice": lambda: Twice(nn.Tanh()),
}


class Last(nn.Module):
    def __init__(self, recurrent: nn.Module) -> None:
        super().__init__()
        self.recurrent = recurrent

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.recurrent(x[None])[0]
        return found


@pytest.mark.parametrize("name", MODELS)
def test_a_deterministic_model_is_safe(name):
    report = probe(MODELS[name], INPUTS, loss)
    assert report.is_safe
    assert report.first is None
    assert report.environment == {}
    assert {mark for line in report.table()[1:] for mark in line[4:]} == {"same"}


@pytest.mark.parametrize(
    ("at", "expected"),
    [
        (0, Difference("forward", "again", "Unsteady", 0, "outputs")),
        (1, Difference("forward", "again", "Unsteady", 1, "outputs")),
        (2, Difference("training", "again", "Unsteady", 0, "outputs")),
        (3, Difference("training", "again", "Unsteady", 1, "outputs")),
    ],
)
def test_the_first_call_that_differs_is_named(at, expected):
    report = probe(lambda: Twice(Unsteady(at)), INPUTS, loss)
    assert report.first == expected
    assert not report.is_safe
    lines = [line for line in report.table() if line[1] == "again" and line[0] == expected.phase]
    assert [line[5] for line in lines] == (["same", "DIFFERENT"] if expected.number else ["DIFFERENT", "DIFFERENT"])


class InPlace(nn.Module):
    """Writes noise into its input and returns it."""

    def forward(self, x: Tensor) -> Tensor:
        with torch.no_grad():
            x.add_(random.SystemRandom().random())
        return x


class Named(nn.Module):
    """Takes and returns containers with numbers and nothing in them."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 3)

    def forward(self, x: Tensor, *, more: object = None) -> dict[str, object]:
        return {"a": (self.layer(x), None), "b": [1, {"c": more}], "d": "text"}


class Sparse(nn.Module):
    """Has an embedding with sparse gradients, twice in one batch the same row."""

    def __init__(self) -> None:
        super().__init__()
        self.rows = nn.Embedding(9, 2, sparse=True)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.rows((x.abs() * 3).long())
        return found


class Sometimes(nn.Module):
    """Leaves a layer out, as the system's entropy says: never in its first run, always in its second."""

    def __init__(self, skips: bool) -> None:
        super().__init__()
        self.first, self.second, self.skips = nn.Linear(6, 6), nn.Tanh(), skips

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.first(x)
        return found if self.skips else self.second(found)


class Within(nn.Module):
    """Calls itself."""

    def forward(self, x: Tensor, again: bool = True) -> Tensor:
        return self(x * 2, again=False) * 3 if again else x + 1


STRANGE: dict[str, tuple[Callable[[], nn.Module], Callable[[Any], Tensor]]] = {
    "containers": (Named, lambda outputs: outputs["a"][0].square().mean()),
    "sparse gradients": (Sparse, loss),
    "nothing to train": (nn.Tanh, loss),
    "frozen": (lambda: nn.Linear(6, 2).requires_grad_(False), loss),
    "in place": (lambda: nn.Sequential(nn.Linear(6, 6), nn.Dropout(inplace=True), nn.ReLU(inplace=True)), loss),
    "itself": (Within, loss),
}


@pytest.mark.parametrize("name", STRANGE)
def test_whatever_a_model_takes_returns_or_trains_it_is_probed(name):
    build, its_loss = STRANGE[name]
    with torch.no_grad():
        report = probe(build, INPUTS, its_loss)
    assert report.is_safe
    assert len(report.rows) >= 2


def test_a_layer_that_writes_noise_into_its_input_is_not_taken_for_its_victim():
    report = probe(lambda: nn.Sequential(nn.Linear(6, 6), InPlace(), nn.Linear(6, 2)), INPUTS, loss)
    assert report.first == Difference("forward", "1", "InPlace", 0, "outputs")


@pytest.mark.parametrize("order", [(False, True), (True, False)])
def test_a_model_that_calls_other_layers_the_second_time_is_not_safe(order):
    runs = iter(order)
    report = probe(lambda: Sometimes(next(runs)), INPUTS, loss)
    assert report.first is not None
    assert (report.first.phase, report.first.field) == ("forward", "calls")
    assert report.first.layer == ("second" if order[1] else "(model)")
    assert [call.layer for call, _ in report.rows] == ["first"]


def test_a_gradient_that_differs_is_named_where_it_first_does():
    report = probe(lambda: Twice(Unsteady(3, backward=True)), INPUTS, loss)
    assert report.first == Difference("training", "first", "Linear", 0, "gradients")


def test_a_summary_is_compared_with_that_of_another_machine(tmp_path):
    path = tmp_path / "summary.json"
    build = MODELS["batch norm"]
    here = summarise(build, INPUTS, loss)
    replace(here, environment=replace(Environment.now(), processor="another")).save(path)
    report = probe(build, INPUTS, loss, against=Summary.load(path))
    assert report.is_safe
    assert report.environment == {"processor": ("another", here.environment.processor)}
    assert not compare(here, summarise(build, INPUTS, loss, seed=1)).is_safe


def test_runs_of_different_models_are_not_compared():
    one, other = (summarise(MODELS[name], INPUTS, loss) for name in ("batch norm", "used twice"))
    with pytest.raises(StorageError, match="call different layers"):
        compare(one, other)


@pytest.mark.parametrize("content", [b"", b"{}", b"[" * 9999, b'{"calls": [[1]], "parameters": {}, "environment": {}}'])
def test_what_is_no_summary_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / "s").write_bytes(content)
    with pytest.raises(CorruptFile, match="summary of a probe"):
        Summary.load(tmp_path / "s")


def test_an_operation_without_a_deterministic_form_raises_or_is_let_through():
    class Scatter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(6))

        def forward(self, x: Tensor) -> Tensor:
            return torch.nn.functional.max_unpool1d(x[None] * self.weight, torch.arange(6).expand(1, 4, 6), (1,))

    with pytest.raises(RuntimeError, match="deterministic"):
        probe(Scatter, INPUTS, loss)
    assert probe(Scatter, INPUTS, loss, deterministic=False).is_safe
