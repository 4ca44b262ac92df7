"""``modyn-dagster dataset``, run in this process on a project folder."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result
from dagster import AssetKey, DagsterInstance

from modyn_dagster.cli import main
from modyn_dagster.settings import Settings
from tests.ingestion.world import dataset_spec
from tests.terminal import terminal_of

GOOD = "time,x,label\n2020-01-01,1,cat\n2020-01-02,2,dog\n"
BAD = "time,x,label\n2020-01-01,1,cat\n2020-01-02,2,\n"


class Project:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def drop(self, name: str, text: str) -> None:
        (self.folder / "data" / name).write_text(text)

    def run(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["dataset", *arguments], catch_exceptions=False)

    def status(self) -> dict[str, str]:
        return {row["batch"]: row["state"] for row in json.loads(self.run("status", "d", "--json").stdout)}

    def shown_in_dagster(self) -> set[str]:
        with DagsterInstance.from_config(str(self.folder)) as instance:
            return instance.get_materialized_partitions(AssetKey(["d", "samples"]))


@pytest.fixture
def project(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> Iterator[Project]:
    folder = settings.project
    for name in ("data", "datasets"):
        (folder / name).mkdir()
    content = dataset_spec(root="../data").model_dump(mode="json", by_alias=True)
    (folder / "datasets" / "d.yaml").write_text(yaml.safe_dump(content))
    # Dagster's own storage in files here, so that its database is not needed.
    (folder / "dagster.yaml").write_text("telemetry: {enabled: false}\n")
    monkeypatch.chdir(folder)
    with monkeypatch.context() as patched:
        for name, value in {
            **settings.environment(),
            "DAGSTER_HOME": str(folder),
            "DAGSTER_PG_URL": "",
            "MODYN_MLFLOW_URI": "",
        }.items():
            patched.setenv(name, value)
        yield Project(folder)


def test_an_import_that_finds_nothing_says_what_it_looked_for(project: Project) -> None:
    project.drop("notes.txt", "nothing to import")
    spec = dataset_spec(root="../data", batches={"kind": "file", "pattern": "*.csv"}).model_dump(mode="json", by_alias=True)
    (project.folder / "datasets" / "d.yaml").write_text(yaml.safe_dump(spec))
    found = project.run("import", "d")
    assert (found.exit_code, found.stdout) == (0, "d: 0 batches ingested, 0 samples, 0 failed\n")
    assert found.stderr.startswith(
        f"nothing in {project.folder / 'data'} is a batch as `batches` says (kind: file, pattern: *.csv"
    )
    project.drop("1.csv", GOOD)
    assert project.run("import", "d").stderr == ""
    assert project.run("import", "d").stderr == ""


def test_an_import_on_a_terminal_shows_what_it_does(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.drop("1.csv", GOOD)
    project.drop("2.csv", GOOD)
    terminal = terminal_of(monkeypatch)
    main(["dataset", "import", "d"], standalone_mode=False)
    for title in ("import d", "show d in Dagster"):
        assert f"{title} " in terminal.getvalue()
    assert terminal.getvalue().count("2/2") >= 2


@pytest.mark.soak("laws-data")
def test_history_is_imported_failures_are_told_and_mended(project: Project) -> None:
    project.drop("1.csv", GOOD)
    project.drop("2.csv", BAD)
    project.drop("3.csv", GOOD)
    first = project.run("import", "d")
    assert (first.exit_code, first.stdout) == (1, "d: 2 batches ingested, 4 samples, 1 failed\n")
    assert first.stderr == "batch 2 failed: 2.csv, row 2, column 'label': the label is missing\n"
    assert project.status() == {"1": "ingested", "2": "failed", "3": "ingested"}
    assert project.shown_in_dagster() == {"1", "3"}

    again = project.run("import", "d")
    assert (again.exit_code, again.stdout) == (0, "d: 0 batches ingested, 0 samples, 0 failed\n")
    unchanged = project.run("retry", "d")
    assert (unchanged.exit_code, "no failed batch has files that changed" in unchanged.stdout) == (0, True)
    asked = project.run("retry", "d", "2")
    assert (asked.exit_code, asked.stdout) == (1, "d: 0 batches ingested, 0 samples, 1 failed\n")

    project.drop("2.csv", GOOD)
    mended = project.run("retry", "d")
    assert (mended.exit_code, mended.stdout) == (0, "d: 1 batches ingested, 2 samples, 0 failed\n")
    assert project.status() == {"1": "ingested", "2": "failed", "3": "ingested", "2~2": "failed", "2~3": "ingested"}
    assert project.shown_in_dagster() == {"1", "3", "2~3"}


@pytest.mark.soak("laws-data")
def test_status_shows_what_a_batch_holds_and_why_one_failed(project: Project) -> None:
    project.drop("1.csv", GOOD)
    project.drop("2.csv", BAD)
    project.run("import", "d", "--by", "count:1")
    table = project.run("status").stdout
    for text in ("part_1", "cat: 1", "2020-01-02", "failed", "2 samples; 2 ingested, 0 open, 1 failed"):
        assert text in table, table
    rows = json.loads(project.run("status", "d", "--json").stdout)
    assert rows[0] == {
        "dataset": "d",
        "batch": "part_1",
        "ordinal": 0,
        "state": "ingested",
        "samples": 1,
        "train_samples": 1,
        "deleted_samples": 0,
        "late_samples": 0,
        "time_min": "2020-01-01T00:00:00+00:00",
        "time_max": "2020-01-01T00:00:00+00:00",
        "labels": {"cat": 1},
        "paths": ["1.csv"],
        "error": None,
        "traceback": None,
        "delivered_again": False,
    }
    assert rows[2]["error"] == "2.csv, row 2, column 'label': the label is missing"


WRONG: dict[tuple[str, ...], str] = {
    ("import", "x"): "error: no dataset 'x'; known: d",
    ("status", "x"): "error: no dataset 'x'; known: d",
    ("retry", "x"): "error: no dataset 'x'; known: d",
    ("retry", "d", "y"): "error: no batch 'y'",
    ("import", "d", "--by", "week"): "error: import: by: must be file, time:<duration>",
}


@pytest.mark.soak("laws-data")
def test_status_shows_where_a_batch_met_a_fault_that_nobody_foresaw(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    project.drop("a.csv", GOOD)
    with monkeypatch.context() as patch:
        patch.setattr("modyn_dagster.ingestion.formats.csv.Csv.open", lambda *_: next(iter(())))
        result = project.run("import", "d")
    assert result.exit_code == 1
    assert "met an error that modyn-dagster does not foresee (StopIteration)" in result.stderr
    assert "`modyn-dagster dataset status --traceback` shows where" in result.stderr
    assert "Traceback" not in project.run("status", "d").stdout
    assert "Traceback (most recent call last):" in project.run("status", "d", "--traceback").stdout
    [row] = json.loads(project.run("status", "d", "--json").stdout)
    assert "next(iter(()))" in row["traceback"]
    # The fault is gone, and the file was never at fault.
    assert project.run("retry", "d", "a").exit_code == 0
    assert project.status() == {"a": "failed", "a~2": "ingested"}


def test_a_wrong_name_or_option_is_told_in_one_sentence(project: Project) -> None:
    for arguments, message in WRONG.items():
        result = project.run(*arguments)
        assert result.exit_code == 1
        assert result.stderr.startswith(message)
        assert result.stderr.count("\n") == 1
