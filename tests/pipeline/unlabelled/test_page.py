"""Recipes of docs/unlabelled.md, live and replayed: what they say is what runs."""

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from modyn_dagster.catalog.results.evaluations import list_evaluations
from modyn_dagster.catalog.results.models import list_models
from modyn_dagster.evaluation.metrics.registry import metrics_of
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from modyn_dagster.spec.load import load_project
from modyn_dagster.spec.tasks.objectives import OBJECTIVES
from tests.pipeline.unlabelled.streams import MakeWorld, deliver, world_without_label
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, drop

PAGE = (Path(__file__).parents[3] / "docs" / "unlabelled.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


def recipe(title: str) -> dict[str, Any]:
    [found] = [block for block in blocks("yaml") if block.startswith(f"# {title}")]
    content: dict[str, Any] = yaml.safe_load(found)
    return {"trigger": {"kind": "amount", "every": 80}} | content | {"name": "recipe", "dataset": DATASET}


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The page's package of user code, ``shop``."""
    folder = tmp_path / "path" / "shop"
    folder.mkdir(parents=True)
    for block in blocks("python"):
        name = block.split("\n", 1)[0].removeprefix("# shop/")
        (folder / name).write_text(block)
    monkeypatch.syspath_prepend(tmp_path / "path")
    yield
    for name in ("shop", "shop.views", "shop.texts", "shop.tags"):
        sys.modules.pop(name, None)


def world_of_recipe(world_of: MakeWorld, title: str) -> World:
    world = world_without_label(world_of)
    project = world.folder / "project.yaml"
    packages = yaml.safe_load(project.read_text())["code"]["packages"]
    project.write_text(yaml.safe_dump({"code": {"packages": [*packages, "shop"]}}))
    (world.folder / "pipelines" / "recipe.yaml").write_text(yaml.safe_dump(recipe(title)))
    world.reload()
    return world


def deliver_texts(world: World, days: int, tags: Callable[[str], str] | None = None) -> None:
    """Texts of two to six numbers, each one more than that before it, and their tags."""
    for day in range(days):
        rng = np.random.default_rng(day)
        starts, lengths = rng.integers(1, 9, 40), rng.integers(2, 7, 40)
        texts = [" ".join(str(1 + (start + i) % 9) for i in range(n)) for start, n in zip(starts, lengths, strict=True)]
        ends = ["" if tags is None else f",{tags(text)}" for text in texts]
        rows = [f"2024-01-{day + 1:02d}T00:{row:02d}:00Z,{text}{ends[row]}" for row, text in enumerate(texts)]
        header = "time,words" + ("" if tags is None else ",tags")
        drop(world.folder, f"day_{day:02d}", "\n".join([header, *rows, ""]))
    spec = world.platform.project.datasets[DATASET]
    import_history(world.platform.engine, world.platform.home, spec, world.platform.project.root_of(DATASET))


def tags_of(text: str) -> str:
    """Runs of numbers above 5 are spans."""
    tags: list[str] = []
    for word in text.split():
        tags.append("O" if int(word) <= 5 else "B-RISE" if tags[-1:] in ([], ["O"]) else "I-RISE")
    return " ".join(tags)


def scores(world: World, metric: str) -> list[float]:
    with world.platform.transaction() as conn:
        cells = list_evaluations(conn, world.run("recipe", "replay").id)
    return [cell.value for cell in cells if cell.metric == metric and cell.value is not None]


@pytest.mark.soak("replays")
def test_the_autoencoder_is_trained_again_when_its_error_rises(world_of: MakeWorld, shop: None) -> None:
    world = world_of_recipe(world_of, "an autoencoder")
    deliver(world, range(3))
    deliver(world, range(3, 5), shift=6.0)
    world.replay("recipe")
    fired = [reason for _, _, _, fire, reason, *_ in world.decisions(world.run("recipe", "replay")) if fire]
    assert fired[0] == "no model yet"
    assert any(reason.startswith("reconstruction_mse") for reason in fired[1:])


@pytest.mark.soak("replays")
def test_embeddings_are_scored_by_all_three_metrics(world_of: MakeWorld, shop: None) -> None:
    world = world_of_recipe(world_of, "embeddings of rows")
    deliver(world, range(4))
    world.replay("recipe")
    assert all(value > 0 for value in scores(world, "nt_xent") + scores(world, "alignment"))
    assert all(value < 0 for value in scores(world, "uniformity"))
    assert scores(world, "uniformity")


def test_the_language_model_is_live_what_it_is_replayed(world_of: MakeWorld, shop: None) -> None:
    world = world_of_recipe(world_of, "a small transformer")
    deliver_texts(world, 4)
    world.live_until_idle("recipe")
    list(finish_live_run(world.platform, world.run("recipe", "live")))
    world.replay("recipe")
    live, replayed = (world.outcome(world.run("recipe", mode)) for mode in ("live", "replay"))
    assert live == replayed
    with world.platform.transaction() as conn:
        assert len(list_models(conn, world.run("recipe", "replay").id)) == 2
    assert all(1 < value < 20 for value in scores(world, "perplexity"))
    assert scores(world, "perplexity")


@pytest.mark.soak("replays")
def test_spans_are_found_live_as_replayed(world_of: MakeWorld, shop: None) -> None:
    world = world_of_recipe(world_of, "tags of words")
    deliver_texts(world, 4, tags_of)
    world.live_until_idle("recipe")
    list(finish_live_run(world.platform, world.run("recipe", "live")))
    world.replay("recipe")
    live, replayed = (world.outcome(world.run("recipe", mode)) for mode in ("live", "replay"))
    assert live == replayed
    assert scores(world, "span_f1")
    assert scores(world, "span_f1")[-1] > 0.8


def test_recipes_pass_the_check_and_the_tables_are_complete(world_of: MakeWorld, shop: None) -> None:
    for title in ("an autoencoder", "embeddings of rows", "a small transformer", "tags of words"):
        load_project(world_of_recipe(world_of, title).folder)
    for name, kind in OBJECTIVES.items():
        [row] = [line for line in PAGE.splitlines() if line.startswith(f"| [`{name}`]")]
        assert f"| `{kind}` |" in row
        assert name in ("masked_tokens", "token_tags") or all(f"`{metric}`" in row for metric in metrics_of(kind))
