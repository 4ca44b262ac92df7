"""Samples in shards in pipelines: the example of the documentation runs, and its state survives losses and kills."""

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from modyn_dagster.keys import key_of
from modyn_dagster.pipeline.context import context_of
from modyn_dagster.pipeline.replay.run import ReplayRequest
from modyn_dagster.pipeline.replay.walk import replay
from modyn_dagster.pipeline.stages.training_set.stage import open_training_set, select_training_set
from modyn_dagster.reproducibility.randomness import seed_for
from modyn_dagster.selection.sampler_state import decoded
from modyn_dagster.selection.time_biased import DRTBS, decay_for
from modyn_dagster.spec.load import parse_spec, spec_hash
from modyn_dagster.spec.pipeline import PipelineSpec
from modyn_dagster.storage import StagedFile
from tests.pipeline.world import World
from tests.projects.tiny import ROWS, amount
from tests.selection.pools import WhimsicalPool

DOCS = Path(__file__).parents[2] / "docs"
PAGE, BEYOND = ((DOCS / page).read_text(encoding="utf-8") for page in ("selection.md", "beyond.md"))


def shown() -> dict[str, Any]:
    """The pipeline in shards of docs/selection.md."""
    blocks = map(yaml.safe_load, re.findall(r"^```yaml\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL))
    [found] = [block for block in blocks if "shards" in str(block) and "trigger" in block]
    return dict(found)


def sharded(name: str) -> dict[str, Any]:
    """The strategy of the page at the size of a tiny stream."""
    strategy = shown()["selection"]["strategy"] | {"n": 60, "decay": {"keep": 0.5, "after": "1d"}}
    return amount(name, every=70, selection={"strategy": strategy})


def chosen(world: World, name: str, mode: str = "replay") -> list[list[int]]:
    triggers = world.triggers(world.run(name, mode).id, "trained")
    contexts = [context_of(world.platform, name, trigger.partition_key) for trigger in triggers]
    rows = [context.training_set for context in contexts]
    return [
        open_training_set(context, row).keys().tolist() for context, row in zip(contexts, rows, strict=True) if row is not None
    ]


def test_shards_decide_about_the_hash_of_a_pipeline_only_where_they_are_asked_for():
    content = shown()
    without = {**content["selection"]["strategy"]}
    shards = without.pop("shards")
    hashes = {
        number: spec_hash(parse_spec(content | {"selection": {"strategy": without | extra}}, PipelineSpec, source="test"))
        for number, extra in ((None, {}), (0, {"shards": None}), (shards, {"shards": shards}), (3, {"shards": 3}))
    }
    assert hashes[None] == hashes[0]
    assert len({hashes[None], hashes[shards], hashes[3]}) == 3


@pytest.mark.soak("replays")
def test_the_pipeline_of_the_page_is_fed_batch_by_batch_with_workers_or_without(world_of):
    world = world_of(sharded("many"))
    world.deliver(range(6))
    world.replay("many")
    shards = shown()["selection"]["strategy"]["shards"]
    sampler, sets = DRTBS(60, decay_for(86_400, 1, 0.5), seed_for(7, "online", -1), shards=shards), []
    for day in range(6):
        keys = np.array([key_of(day, i) for i in range(ROWS)], np.uint64)
        cuts = [n - day * ROWS for n in range(70, 6 * ROWS + 1, 70) if day * ROWS < n <= (day + 1) * ROWS]
        for number, part in enumerate(np.split(keys, cuts)):
            if len(part):
                sampler.update(part, elapsed=86_400.0 if number == 0 else 0.0)
            if number < len(cuts):
                sets.append(sorted(sampler.sample().tolist()))
    assert chosen(world, "many") == sets
    trigger = world.triggers(world.run("many", "replay").id)[-1]
    pool = WhimsicalPool(2, 0)
    context = replace(context_of(world.platform, "many", trigger.partition_key), pool=pool)
    row = context.training_set
    assert row is not None
    state = json.loads((world.platform.home / row.details["state"]["path"]).read_bytes())["sampler"]
    held = [decoded(shard["keys"]) for shard in state["shards"]]
    assert len(held) == shards
    # One more may be the partial item.
    assert len(sets[-1]) - sum(map(len, held)) in (0, 1)
    assert set(np.concatenate(held).tolist()) <= set(sets[-1])
    # Workers choose the same samples: selecting again for a trained trigger raises where a byte differs.
    assert select_training_set(context) == row
    assert pool.made


@pytest.mark.soak("replays")
def test_a_replay_deals_its_shards_to_its_workers_where_no_training_needs_them(world_of):
    serial = sharded("serial")
    serial["training"] |= {"use_previous_model": True}
    world = world_of(serial, sharded("ahead"))
    world.deliver(range(4))
    for name, deals in (("serial", True), ("ahead", False)):
        world.replay(name, name="alone")
        pool = WhimsicalPool(2, 0)
        list(replay(world.platform, ReplayRequest(name, world.keys(), "dagster-run", name="dealt"), pool=pool))
        assert ("advance" in pool.made) == deals
        alone, dealt = (world.outcome(world.run_named(name, run)) for run in ("alone", "dealt"))
        assert len(alone["models"]) == 2
        assert alone == dealt


def test_the_code_of_the_page_prints_what_it_says(tmp_path, capsys):
    text = BEYOND[BEYOND.index("## Sampling in shards") :]
    [block] = re.findall(r"^```python\n(.*?)^```", text[: text.index("\n## ")], re.MULTILINE | re.DOTALL)
    (tmp_path / "block.py").write_text(block)
    runpy.run_path(str(tmp_path / "block.py"))
    assert capsys.readouterr().out.strip() == block.rpartition("# ")[2].strip()


@pytest.mark.soak("distributed")
def test_lost_states_and_killed_selections_change_no_shard(world_of, monkeypatch):
    undisturbed, disturbed = sharded("undisturbed"), sharded("disturbed")
    world = world_of(undisturbed, disturbed)
    publish = StagedFile.publish
    for day in range(6):
        world.deliver([day])
        world.live_until_idle("undisturbed")
        while (now := world.tick("disturbed")).train is not None:
            for place in range(2):
                left = iter([*[publish] * place, None])

                def killed(file: StagedFile, left=left) -> None:
                    if next(left, publish) is None:
                        raise KeyboardInterrupt
                    publish(file)

                with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
                    patch.setattr(StagedFile, "publish", killed)
                    world.train("disturbed", now.train)
            world.train("disturbed", now.train)
            if day % 2:
                for path in world.platform.home.glob("training_sets/*/*.state.json"):
                    path.unlink()
    assert len(chosen(world, "disturbed", "live")) == 3
    assert chosen(world, "disturbed", "live") == chosen(world, "undisturbed", "live")
    world.replay("disturbed")
    assert chosen(world, "disturbed") == chosen(world, "disturbed", "live")
