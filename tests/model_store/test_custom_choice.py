"""Choices of the user's own among the storage strategies: they decide the file, never the model, and their errors and laws."""

import runpy
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError

from modyn_dagster.errors import ConfigError, ImportPathError, LawBroken
from modyn_dagster.model_store import Custom, ModelStore
from modyn_dagster.model_store.conformance import check_choice
from modyn_dagster.pipeline.preflight import check_storage_code
from modyn_dagster.pipeline.stages.model.model_saving import storage_strategy
from modyn_dagster.spec.operation import ModelStoreSpec
from tests.evaluation.test_evaluation_page import code_blocks
from tests.model_store import user_choices

PAGE = (Path(__file__).parents[2] / "docs" / "model_store.md").read_text(encoding="utf-8")
PATH = user_choices.__name__


def state(seed: int) -> dict[str, torch.Tensor]:
    """A frozen layer, and a small one that every model has anew."""
    head = torch.randn(8_000, generator=torch.Generator().manual_seed(seed))
    return {"body": torch.arange(40_000, dtype=torch.float32), "head": head}


def spec(name: str, **config: Any) -> ModelStoreSpec:
    return ModelStoreSpec(strategy="custom", factory=f"{PATH}:{name}", config=config)


def test_the_function_decides_how_each_model_of_a_lineage_is_stored_and_all_come_back(tmp_path: Path) -> None:
    store = ModelStore(tmp_path)
    strategy = storage_strategy(spec("whole_every", models=3), source="pipeline p")
    models: list[Any] = []
    for number in range(7):
        models.append(store.save(state(number), base=models[-1] if models else None, strategy=strategy))
    infos = [store.info(model) for model in models]
    assert [info.strategy for info in infos] == ["snapshot", "changed_layers", "changed_layers"] * 2 + ["snapshot"]
    assert all(info.reason.startswith(f"{PATH}:whole_every chose ") for info in infos)
    for number, model in enumerate(models):
        loaded = store.load(model)
        assert all(torch.equal(loaded[name], tensor) for name, tensor in state(number).items())


@pytest.mark.parametrize(("name", "rule"), [("failing", "failed: KeyError"), ("made_up", "must return one of the")])
def test_a_choice_that_fails_or_is_no_offer_stores_nothing(tmp_path: Path, name: str, rule: str) -> None:
    store = ModelStore(tmp_path)
    with pytest.raises(ConfigError, match=rule) as raised:
        store.save(state(0), strategy=storage_strategy(spec(name), source="pipeline p"))
    assert f"{PATH}:{name}" in str(raised.value)
    assert list(store.list()) == []


def test_check_calls_the_factory() -> None:
    with pytest.raises(ImportPathError, match=r"pipeline p: model_store\.factory"):
        check_storage_code(spec("absent"), source="pipeline p")
    with pytest.raises(ConfigError, match=r"pipeline p: model_store\.config"):
        check_storage_code(spec("smallest", models=3), source="pipeline p")
    check_storage_code(ModelStoreSpec(), source="pipeline p")


@pytest.mark.parametrize(
    ("content", "rule"),
    [
        ({"strategy": "custom"}, "belong together"),
        ({"factory": f"{PATH}:smallest"}, "belong together"),
        ({"config": {"models": 3}}, "factory, which is missing"),
        ({"strategy": "custom", "factory": f"{PATH}:smallest", "max_recovery_seconds": 3}, "needs strategy adaptive"),
    ],
)
def test_fields_that_do_not_fit_are_refused(content: dict[str, Any], rule: str) -> None:
    with pytest.raises(ValidationError, match=rule):
        ModelStoreSpec(**content)


def test_good_choices_obey_the_laws() -> None:
    check_choice(user_choices.smallest)
    check_choice(user_choices.whole_every, {"models": 5})


@pytest.mark.parametrize("name", ["by_chance", "in_turn"])
def test_a_choice_by_chance_or_by_its_own_count_is_named(name: str) -> None:
    with pytest.raises(LawBroken, match="equal calls agree"):
        check_choice(getattr(user_choices, name))


def test_the_example_of_the_page_obeys_the_laws(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    blocks = code_blocks(PAGE, "python")
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "storage.py").write_text(next(block for block in blocks if block.startswith("# shop/storage.py")))
    (tmp_path / "check.py").write_text(next(block for block in blocks if "check_choice" in block))
    monkeypatch.syspath_prepend(tmp_path)
    try:
        runpy.run_path(str(tmp_path / "check.py"))
        config = {"strategy": "custom", "factory": "shop.storage:loaded_within", "config": {"seconds": 2}}
        assert isinstance(storage_strategy(ModelStoreSpec(**config), source="pipeline p"), Custom)
    finally:
        for name in ("shop", "shop.storage"):
            sys.modules.pop(name, None)
