"""``dataset import`` with label files, ``dataset labels``, and a replay that trains on what was known then."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from modyn_dagster.catalog.database.urls import child_environment
from modyn_dagster.catalog.results.training_sets import list_training_sets
from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.pipeline.world import World, make_world
from tests.projects.tiny import DATASET, amount, batch_text, drop

FILES = {"root": "../labels", "format": {"kind": "csv"}, "batches": {"kind": "file", "pattern": "*.csv"}}
DAYS = (0, 1, 2, 3)


@pytest.fixture
def world(settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Four days of 40 samples; the labels of each day but the last come in a file a day later."""
    made = make_world(settings, tmp_path / "project", [amount(every=40, selection={"window": "all"})])
    path = made.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text()) | {"id": {"source": "column", "column": "id"}}
    content["label"] = {"kind": "class", "n_classes": 2, "arrives": "later", "files": FILES}
    path.write_text(yaml.safe_dump(content))
    (made.folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    (made.folder / "labels").mkdir()
    for day in DAYS:
        _, *rows = batch_text(day).splitlines()
        cells = [row.split(",") for row in rows]
        lines = [f"{time},{x},{y},{day}-{n}" for n, (time, x, y, _) in enumerate(cells)]
        drop(made.folder, f"day_{day:02d}", "\n".join(["time,x,y,id", *lines, ""]))
        if day != DAYS[-1]:
            labels = [f"{day}-{n},{label},2024-01-{day + 2:02d}T01:00:00" for n, (*_, label) in enumerate(cells)]
            (made.folder / "labels" / f"of_{day}.csv").write_text("\n".join(["id,label,known_at", *labels, ""]))
    made.reload()
    environment = child_environment(made.settings) | {"DAGSTER_HOME": str(made.folder)}
    for name, value in (made.settings.environment() | environment).items():
        monkeypatch.setenv(name, value)
    yield made
    made.close()


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["dataset", *arguments], catch_exceptions=False)


def test_labels_are_imported_among_the_samples_and_a_replay_trains_on_those_known_then(world: World) -> None:
    done = run("import", DATASET)
    assert done.exit_code == 0, done.stderr
    assert "tiny: 3 label batches ingested, 120 labels, 0 waited for their samples" in done.stdout
    status = json.loads(run("labels", "status", DATASET, "--json").stdout)
    assert [(batch["batch"], batch["arrival"]) for batch in status["label_batches"]] == [("of_0", 2), ("of_1", 4), ("of_2", 6)]
    assert sum(age["labelled"] for age in status["coverage_by_age"]) == 120
    assert sum(age["samples"] for age in status["coverage_by_age"]) == 160
    world.replay("by_amount")
    row = world.run("by_amount", "replay")
    with world.platform.transaction() as conn:
        sets = list_training_sets(conn, row.id)
    # The labels of a day arrive after the next day's batch: a trigger in day 2 sees those of day 0, one in day 3 also those of 1.
    assert [each.n_samples for each in sets if each.n_samples] == [40, 80]


@pytest.mark.soak("screens")
def test_later_files_arrive_when_they_are_imported_and_a_bad_one_is_delivered_again(world: World) -> None:
    run("import", DATASET)
    path = world.folder / "labels" / "of_3.csv"
    path.write_text("id,label,known_at\n3-0,5,2024-01-05\n")
    failed = run("labels", "import", DATASET)
    assert failed.exit_code == 1
    assert "label batch of_3 failed: of_3.csv, row 1, column 'label': the class 5 is not in 0 .. 1 (id '3-0')" in failed.stderr
    assert (
        "no failed label batch has files that changed"
        in run("labels", "retry", DATASET).stderr + run("labels", "retry", DATASET).stdout
    )
    path.write_text("id,label,known_at\n3-0,1,2024-01-05\n0-0,1,2024-01-06\n4-0,1,2024-01-06\n")
    again = run("labels", "retry", DATASET)
    assert again.exit_code == 0, again.stderr
    assert "tiny: 1 label batches ingested, 3 labels, 1 of them wait for their samples, 0 failed" in again.stdout
    shown = run("labels", "status", DATASET).stdout
    assert "1 corrections of 1 samples; 1 ids wait for their sample" in " ".join(shown.split())
    assert "'4-0'" in shown


@pytest.mark.soak("screens")
def test_samples_that_are_labelled_by_default_are_counted_apart(world: World) -> None:
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text())
    content["label"]["default_after"] = {"label": 0, "after": "1d"}
    path.write_text(yaml.safe_dump(content))
    for day in range(3):
        # The first label of a day alone.
        file = world.folder / "labels" / f"of_{day}.csv"
        file.write_text("\n".join(file.read_text().splitlines()[:2]) + "\n")
    run("import", DATASET)
    status = json.loads(run("labels", "status", DATASET, "--json").stdout)
    ages = status["coverage_by_age"]
    assert sum(age["labelled"] for age in ages) == sum(age["by_default"] for age in ages) + 3
    assert sum(age["by_default"] for age in ages) == 117
    shown = " ".join(run("labels", "status", DATASET).stdout.split())
    assert "120 of 160 samples have a label, 117 of them by default" in shown


def test_labels_of_a_dataset_without_label_files_are_refused(world: World) -> None:
    path = world.folder / "datasets" / f"{DATASET}.yaml"
    content = yaml.safe_load(path.read_text())
    content["label"] = {"from": {"source": "column", "column": "y"}}
    path.write_text(yaml.safe_dump(content))
    refused = run("labels", "status", DATASET)
    assert refused.exit_code == 1
    assert "need `arrives: later` and `files`" in refused.stderr
