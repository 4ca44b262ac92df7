"""Trainers of a user's own: the protocol, chunks, and what is refused."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from modyn_dagster.errors import ConfigError, TrainingError, WrongShape
from modyn_dagster.spec.training import TrainingSpec
from modyn_dagster.training import build_predictor
from modyn_dagster.training.trainers.protocol import LearningTask
from modyn_dagster.training.trainers.trial import Trial
from tests.training.trainers.fitted import classes, content, fitted, logits, matrix, outputs, plain, previous
from tests.training.trainers.own_trainers import ChunkedMeans, Means

MODULE = "tests.training.trainers.own_trainers"


def own(name: str, **config: Any) -> dict[str, Any]:
    return {"name": "trainer", "factory": f"{MODULE}:{name}", "config": config}


@pytest.fixture(autouse=True)
def no_sizes() -> Iterator[None]:
    ChunkedMeans.sizes.clear()
    yield
    ChunkedMeans.sizes.clear()


def test_a_trainer_of_ones_own_is_stored_and_continued_as_its_bytes_say() -> None:
    table, more = classes(), classes(seed=9)
    spec = plain(own("Means", scale=2.0), use_previous_model=True)
    first = fitted(table, spec)
    second = fitted(more, spec, previous=previous(first))
    assert table.labels is not None and more.labels is not None
    both, labels = np.concatenate([matrix(table), matrix(more)]), np.concatenate([table.labels, more.labels])
    means = np.stack([both[labels == number].mean(axis=0) for number in range(3)])
    powers = np.exp(-2 * ((matrix(more)[:, None, :] - means) ** 2).sum(axis=2))
    np.testing.assert_allclose(outputs(second, more), logits(powers / powers.sum(axis=1, keepdims=True)), rtol=1e-4, atol=1e-4)
    assert second.architecture["library"] == {"name": "own_trainers", "version": "1"}
    assert content(second).startswith(b'{"sums"')


def test_a_trainer_with_partial_fit_gets_the_set_in_chunks_with_the_same_result() -> None:
    table = classes(20_000)
    weights = np.linspace(1, 2, 20_000)
    whole = fitted(table, plain(own("Means")), weights=weights)
    assert ChunkedMeans.sizes == []
    chunked = fitted(table, plain(own("ChunkedMeans")), weights=weights)
    assert ChunkedMeans.sizes == [8192, 8192, 3616]
    np.testing.assert_allclose(outputs(chunked, table), outputs(whole, table), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("name", "error", "sentence"),
    [
        ("Pickled", ConfigError, r"its model file is a pickle \(protocol 4\), which would run code"),
        ("Half", ConfigError, "Half lacks predict, to_bytes, from_bytes, continues, library"),
        ("Wide", WrongShape, "trainer"),
        ("Texts", TrainingError, "to_bytes returned str, expected bytes"),
        ("Empty", TrainingError, "to_bytes returned nothing, expected bytes"),
    ],
)
def test_an_unsound_trainer_is_refused(name: str, error: type[Exception], sentence: str) -> None:
    with pytest.raises(error, match=sentence):
        fitted(classes(), plain(own(name)))


def test_a_trainer_that_does_not_continue_is_given_no_previous_model() -> None:
    spec = plain(own("Fixed"), use_previous_model=True)
    with pytest.raises(ConfigError, match=r"training\.use_previous_model: trainer cannot continue an earlier model"):
        fitted(classes(), spec, previous=previous(fitted(classes(), spec)))


def test_a_stored_pickle_is_not_loaded() -> None:
    import pickle

    import torch

    model = fitted(classes(), plain(own("Means")))
    state = model.state_dict | {"body.content": torch.frombuffer(bytearray(pickle.dumps({})), dtype=torch.uint8)}
    with pytest.raises(ConfigError, match="its model file is a pickle"):
        build_predictor(model.architecture, state, threads=1, source="p")


def test_the_factory_is_told_the_task() -> None:
    seen = []

    class Noting(Means):
        def __init__(self, task: Any, scale: float = 1.0) -> None:
            seen.append(task)
            super().__init__(task, scale)

    import tests.training.trainers.own_trainers as module

    module.Noting = Noting  # type: ignore[attr-defined]  # as a module of the user's would have it
    try:
        fitted(classes(), plain(own("Noting"), use_previous_model=True), threads=2)
    finally:
        del module.Noting  # type: ignore[attr-defined]  # as above
    task = seen[-1]
    assert (task.kind, task.columns, task.n_outputs, task.threads, task.source) == ("class", ("a", "b", "c"), 3, 2, "pipeline p")
    assert task.continued


def test_the_example_of_the_docs_is_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (Path(__file__).parents[3] / "docs" / "own_models.md").read_text(encoding="utf-8")
    [code] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    module = ModuleType("docs_centroids")
    exec(code, module.__dict__)  # noqa: S102 - the page's own example
    monkeypatch.setitem(sys.modules, "docs_centroids", module)
    table = classes()
    model = {"name": "trainer", "factory": "docs_centroids:Centroids", "config": {"sharpness": 2.0}}
    trained = fitted(table, plain(model))
    assert (outputs(trained, table).argmax(axis=1) == table.labels).mean() > 0.7
    spec = TrainingSpec.model_validate({"model": model})
    Trial(spec, spec.model, LearningTask("class", ("a", "b"), 3, 1, "p"), weighted=True, seed=0).run()  # type: ignore[arg-type]  # a trainer
