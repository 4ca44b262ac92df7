"""`modyn-dagster check --data`: faults in the first rows of the files, each with its place and what to do."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from modyn_dagster.cli import main

DATASET: dict[str, Any] = {
    "name": "numbers",
    "root": "../data",
    "format": {"kind": "csv"},
    "time": {"source": "column", "column": "time"},
    "label": {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}},
}
PIPELINE: dict[str, Any] = {
    "name": "hourly",
    "dataset": "numbers",
    "trigger": {"kind": "time", "every": "1h"},
    "training": {"features": ["x", "team"], "model": {"name": "logistic_regression"}},
    "evaluation": {"intervals": {"every": "1d"}},
}
GOOD = "time,x,team,label\n2020-01-01,1.5,1,0\n2020-01-02,2,2,1\n"


class Files:
    """A project whose specs and files are written by the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.data = folder / "data"
        self.data.mkdir()
        self.spec("datasets", DATASET)
        self.spec("pipelines", PIPELINE)

    def spec(self, kind: str, content: dict[str, Any]) -> None:
        (self.folder / kind).mkdir(exist_ok=True)
        (self.folder / kind / f"{content['name']}.yaml").write_text(yaml.safe_dump(content))

    def dataset(self, **fields: Any) -> None:
        self.spec("datasets", DATASET | fields)

    def features(self, features: Any) -> None:
        self.spec("pipelines", PIPELINE | {"training": PIPELINE["training"] | {"features": features}})

    def training(self, **fields: Any) -> None:
        self.spec("pipelines", PIPELINE | {"training": PIPELINE["training"] | fields})

    def drop(self, name: str, text: str) -> str:
        (self.data / name).write_text(text)
        return str(self.data / name)

    def check(self, *arguments: str) -> Result:
        return CliRunner().invoke(main, ["check", "--data", *arguments], catch_exceptions=False)

    def errors(self) -> list[str]:
        found = self.check()
        assert found.exit_code == 1
        return [line.removeprefix("error: ") for line in found.stderr.splitlines()]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Files]:
    (tmp_path / "project").mkdir()
    monkeypatch.setenv("MODYN_PROJECT", str(tmp_path / "project"))
    monkeypatch.setenv("MODYN_HOME", str(tmp_path / "home"))
    yield Files(tmp_path / "project")
    assert not (tmp_path / "home").exists()


def test_files_that_fit_are_no_errors(files: Files) -> None:
    files.drop("1.csv", GOOD)
    found = files.check()
    assert (found.exit_code, found.stderr) == (0, "")
    assert found.stdout.endswith("no errors (datasets: 1, pipelines: 1); the first rows of the files fit them\n")


def test_a_column_of_text_as_a_feature_is_refused_with_the_first_row_that_shows_it(files: Files) -> None:
    path = files.drop("1.csv", GOOD)
    path = files.drop("1.csv", "time,x,team,label\n2020-01-01,1,7,0\n2020-01-02,2,BOS,1\n2020-01-03,2,NYA,1\n")
    assert files.errors() == [
        f"{path}, row 2, column 'team': 'BOS' is no number, but pipeline hourly uses the column as a feature; "
        "correct the file, give the column an encoding under `training.encode`, or remove it from `training.features`"
    ]
    files.features("numeric")
    assert files.check().exit_code == 0


def test_a_column_of_text_with_an_encoding_is_a_feature(files: Files) -> None:
    files.drop("1.csv", "time,x,team,label\n2020-01-01,1.5,BOS,0\n2020-01-02,,NYA,1\n")
    files.training(features=["x", {"dtype": "string"}], encode={"te*": {"kind": "one_hot"}}, impute={"*": {}})
    assert files.check().exit_code == 0


def test_encodings_that_the_files_cannot_have_are_refused(files: Files) -> None:
    many = "".join(f"2020-01-{day:02},1.5,t{day},{day % 2}\n" for day in range(1, 30))
    path = files.drop("1.csv", f"time,x,team,label\n{many}")
    files.training(features=["x", "team"], encode={"team": {"kind": "one_hot", "max_values": 28}})
    assert files.errors() == [
        "pipeline hourly: training.encode.team.max_values: column 'team' has 29 values in the first rows of 1.csv: "
        "raise it, or say `beyond: unknown` or `kind: hash` (found 28)"
    ], path
    files.training(features=["x", "team"], encode={"team": {"kind": "one_hot", "max_values": 28, "beyond": "unknown"}})
    assert files.check().exit_code == 0
    files.training(features=[{"pattern": "price_*"}])
    [error] = files.errors()
    assert "training.features.0: selects no column; known: time (string), x (float64), team (string), label (int64)" in error
    files.training(features=["x"], encode={"x": {"kind": "one_hot"}})
    [error] = files.errors()
    assert "training.encode: is float64: text, integers and truth values can be encoded" in error


def test_a_feature_that_is_no_column_names_the_probable_one(files: Files) -> None:
    files.drop("1.csv", GOOD)
    files.features(["x", "taem"])
    [error] = files.errors()
    assert error.startswith(
        "pipeline hourly: training.features: is not a column of the files, which have time, x, team, label (did you mean team?)"
    )


def test_a_fraction_in_a_group_of_integers_is_refused_as_the_training_would(files: Files) -> None:
    files.drop("1.csv", GOOD)
    (files.folder / "code").mkdir()
    (files.folder / "code" / "net_of_integers.py").write_text("def net(n_features, n_outputs): ...")
    features = {"ids": {"columns": ["x"], "dtype": "int64"}}
    training = PIPELINE["training"] | {"model": {"factory": "net_of_integers:net"}, "features": features}
    files.spec("pipelines", PIPELINE | {"training": training})
    [error] = files.errors()
    assert "pipeline hourly: training.features.ids: is float64, which int64 cannot hold" in error


def test_labels_of_another_dtype_than_the_spec_says_are_refused(files: Files) -> None:
    path = files.drop("1.csv", "time,x,team,label\n2020-01-01,1,7,0.5\n")
    [error] = files.errors()
    assert error.startswith(f"{path}: columns differ from the dataset's: expected label int64, found label float64; ")
    files.dataset(label={"kind": "target", "from": {"source": "column"}})
    assert files.check().exit_code == 0


@pytest.mark.parametrize(
    ("fields", "row", "place", "rule"),
    [
        (
            {},
            "2020-01-03,1,1,2",
            "column 'label'",
            "the class 2 is not in 0 .. 1; correct the file, or `label` of dataset numbers",
        ),
        ({}, "2020-01-03,1,1,-1", "column 'label'", "the class -1 is not in 0 .. 1"),
        ({}, "2020-01-03,1,1,yes", "column 'label'", "'yes' is not int64; correct the file, or name the dtype under"),
        ({}, "then,1,1,1", "column 'time'", "the timestamp 'then' does not match ISO 8601; correct the file, or `time` of"),
        ({}, ",1,1,1", "column 'time'", "the time is missing; correct the file, or `time` of dataset numbers"),
        ({}, "2020-01-03,1,1", None, "the row has 3 fields, the header has 4; correct the file"),
        ({}, '2020-01-03,1,1,"1', "column 'label'", "bad quote: it is never closed; correct the file or remove it"),
        (
            {"label": {"classes": ["0", "1"], "from": {"source": "column"}}},
            "2020-01-03,1,1,maybe",
            "column 'label'",
            "unknown class 'maybe'; the dataset's classes are '0', '1'",
        ),
        (
            {"label": {"kind": "target", "from": {"source": "column"}}},
            "2020-01-03,1,1,inf",
            "column 'label'",
            "the target is inf, not a finite number",
        ),
    ],
)
def test_a_bad_cell_is_named_by_file_row_and_column_with_what_to_do(
    files: Files, fields: dict[str, Any], row: str, place: str | None, rule: str
) -> None:
    files.dataset(**fields)
    files.drop("1.csv", GOOD)
    path = files.drop("2.csv", GOOD + row + "\n")
    [error] = files.errors()
    assert error.startswith(", ".join([path, "row 3", *([place] if place else [])]) + f": {rule}"), error


def test_every_fault_of_every_file_is_found_in_one_pass(files: Files) -> None:
    first = files.drop("1.csv", "time,x,team,label\nsoon,1,BOS,9\n")
    second = files.drop("2.csv", "time,x,label\n2020-01-01,1,1\n")
    third = files.drop("3.csv", "")
    found = json.loads(files.check("--json").stdout)
    assert {(each["source"], each["field"], each["row"]) for each in found} == {
        (first, "label", 1),
        (first, "time", 1),
        (first, "team", 1),
        (second, None, None),
        (third, None, None),
    }
    assert all("; " in each["rule"] and each["message"] for each in found)


def test_a_column_that_the_spec_names_and_no_file_has_is_told_once(files: Files) -> None:
    files.dataset(time={"source": "column", "column": "when"}, attributes=["country"])
    path = files.drop("1.csv", GOOD)
    files.drop("2.csv", GOOD)
    has = "the file has no such column; it has time, x, team, label"
    assert files.errors() == [
        f"{path}, column 'country': {has}; correct `attributes` of dataset numbers",
        f"{path}, column 'when': {has}; correct `time.column` of dataset numbers",
    ]


def test_a_root_without_batches_and_one_that_does_not_exist_are_told(files: Files) -> None:
    [error] = files.errors()
    assert "dataset numbers: root: holds no batch as `batches` says (kind: file, pattern: *" in error
    files.dataset(root="../nowhere")
    [error] = files.errors()
    assert "dataset numbers: root: cannot be read" in error
    assert "is not a folder; create it" in error


def test_of_a_large_file_only_the_first_rows_are_looked_at(files: Files) -> None:
    rows = "2020-01-01,1.5,1,0\n" * 100_000
    files.drop("1.csv", "time,x,team,label\n" + rows + "never,1,1,1\n")
    assert files.check().exit_code == 0
    files.drop("1.csv", "time,x,team,label\nnever,1,1,1\n" + rows)
    assert "row 1, column 'time'" in files.errors()[0]


def test_of_many_batches_the_oldest_and_the_newest_are_looked_at(files: Files) -> None:
    for i in range(40):
        files.drop(f"{i}.csv", GOOD)
    files.drop("20.csv", "nothing")
    assert files.check().exit_code == 0
    files.drop("39.csv", "nothing")
    assert "39.csv" in files.errors()[0]


def test_labels_of_files_that_are_samples_are_checked(files: Files) -> None:
    label = {"n_classes": 2, "from": {"source": "folder"}}
    files.dataset(
        format={"kind": "files", "suffixes": [".bin"]},
        batches={"kind": "directory"},
        time={"source": "mtime"},
        label=label,
        root="../data",
    )
    files.features("numeric")
    for name in ("day/0", "day/5"):
        (files.data / name).mkdir(parents=True)
        (files.data / name / "a.bin").write_bytes(b"sample")
    (files.data / "day" / "_READY").touch()
    [error] = files.errors()
    assert "day/5/a.bin: the class 5 is not in 0 .. 1; correct the file or remove it" in error


def test_specs_that_are_impossible_are_told_with_the_data_of_the_others(files: Files) -> None:
    files.spec("pipelines", PIPELINE | {"name": "daily", "seed": -1})
    files.drop("1.csv", "time,x,team,label\n2020-01-01,1,BOS,1\n")
    errors = files.errors()
    assert [("seed" in error, "BOS" in error) for error in errors] == [(True, False), (False, True)]
