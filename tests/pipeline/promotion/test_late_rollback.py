"""A rollback by the score as known waits for labels that come late, live as in a replay."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final

import pytest
import yaml

from modyn_dagster.catalog.runs import RunRow
from modyn_dagster.ingestion.history import import_history
from modyn_dagster.pipeline.promotion.actions import act
from modyn_dagster.pipeline.stages.trigger_stages import finish_live_run
from tests.pipeline.promotion.test_live_is_replay import alike, history, promoting
from tests.pipeline.world import World
from tests.projects.tiny import DATASET, Content, amount, batch_text, drop

FILES: Final = {"root": "../labels", "format": {"kind": "csv"}, "batches": {"kind": "file", "pattern": "*.csv"}}
DAYS: Final = 13
#: Batch after which a person promotes two models, the older one by mistake.
MISTAKE: Final = 5
PROMOTED: Final = (4, 2)
INTERVALS: Final = 2
#: A bound that no model reaches, and that of an old model against a newer one on a stream that turns.
LIMITS: Mapping[str, Content] = {"accuracy": {"below": 0.999}, "log_loss": {"guardrails": True}}


def pipeline(limit: Content) -> Content:
    """Tests decide nothing; the score of a day needs more labels than those that come with the next one."""
    back = {"every": "1d", "intervals": INTERVALS, "min_samples": 30, "cool_down": "1d"} | limit
    guardrails = {"metrics": [{"metric": "log_loss", "max_drop": 0.0}]}
    content = promoting(amount("late", every=40), rollback=back, guardrails=guardrails, confidence=0.999, min_samples=10_000)
    return content | {"selection": {"window": {"last_triggers": 2}}}


def labels_of(day: int, late: int) -> Iterator[tuple[int, str]]:
    """Labels of a day as rows of files, with the day of each file: every second one comes late, every seventh never."""
    for position, row in enumerate(batch_text(day).splitlines()[1:]):
        if position % 7:
            known = day + late * (position % 2)
            yield known, f"{day}-{position},{row.rpartition(',')[2]},2024-01-{known + 1:02d}T13:00:00"


def begin(world: World) -> None:
    """Let the labels of the project come in files of their own."""
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text()) | {"id": {"source": "column", "column": "id"}}
    content["label"] = {"kind": "class", "n_classes": 2, "arrives": "later", "files": FILES}
    path.write_text(yaml.safe_dump(content))
    (world.folder / "labels").mkdir()
    world.reload()


def lived(world: World, late: int) -> RunRow:
    """A live run to which samples and labels come day by day; after a mistake the stream goes on."""
    begin(world)
    labels = [row for day in range(DAYS) for row in labels_of(day, late)]
    project = world.platform.project
    for day in range(DAYS):
        rows = [f"{row.rpartition(',')[0]},{day}-{position}" for position, row in enumerate(batch_text(day).splitlines()[1:])]
        drop(world.folder, f"day_{day:02d}", "\n".join(["time,x,y,id", *rows, ""]))
        known = [text for file, text in labels if file == day]
        (world.folder / "labels" / f"of_{day:02d}.csv").write_text("\n".join(["id,label,known_at", *known, ""]))
        places = project.datasets[DATASET], project.root_of(DATASET)
        import_history(world.platform.engine, world.platform.home, *places, label_root=project.label_root_of(DATASET))
        world.live_until_idle("late")
        if day == MISTAKE:
            for trigger in PROMOTED:
                act(world.platform, world.run("late", "live"), "promote", trigger, "ann", "by mistake")
    return world.run("late", "live")


@pytest.mark.soak("production")
@pytest.mark.parametrize("late", [0, 2])
@pytest.mark.parametrize("metric", LIMITS)
def test_a_champion_is_rolled_back_once_the_late_labels_of_its_bad_days_are_there_and_so_it_is_in_a_replay(
    world_of: Callable[..., World], metric: str, late: int
) -> None:
    world = world_of(pipeline(LIMITS[metric]))
    live = lived(world, late)
    [back, *_] = [event for event in history(world, live) if event[5] == "rollback" and event[4] == "champion"]
    # A file of labels arrives behind the batch of its day, so a look at the next one is the first that knows them.
    assert (back[1], back[7]) == (PROMOTED[0], MISTAKE + INTERVALS + late + 1)
    assert f"its score was bad in {INTERVALS} intervals of 1d in a row" in back[6]
    assert metric in back[6]
    list(finish_live_run(world.platform, live))
    world.replay("late", manual_of=live.id)
    alike(world, live, world.run("late", "replay"))
