"""``modyn-dagster init NAME --from FILE``: guesses, refusals, and projects that pass their check."""

import io
import json
import re
import shutil
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.cli import main
from modyn_dagster.cli.init import look
from modyn_dagster.cli.init.content import scalar
from modyn_dagster.cli.init.folder import new_folder
from modyn_dagster.cli.init.look import look_at
from modyn_dagster.cli.init.roles import Features, features
from modyn_dagster.errors import ConfigError
from modyn_dagster.values.yaml_values import read_yaml
from tests.cli.drawn_tables import DAYS, N, plain, table


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, for data and project; the modules of a project stay out of other tests' search path."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def here_now(folder: str = ".") -> list[str]:
    return sorted(path.name for path in Path(folder).iterdir())


def init(content: str | bytes, *options: str, file: str = "data.csv", stdin: str | None = None) -> Result:
    Path(file).write_bytes(content if isinstance(content, bytes) else content.encode())
    return CliRunner().invoke(main, ["init", "shop", "--from", file, *options], input=stdin)


def dataset() -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path("shop/datasets/shop.yaml"))
    return content


def training(pipeline: str = "by_amount") -> dict[str, Any]:
    content: dict[str, Any] = read_yaml(Path(f"shop/pipelines/{pipeline}.yaml"))["training"]
    return content


def require_sound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(Path("shop").absolute()))
    checked = CliRunner().invoke(main, ["check", "--data"])
    assert checked.exit_code == 0, checked.stderr


def test_a_file_becomes_a_project_that_passes_its_check(monkeypatch: pytest.MonkeyPatch) -> None:
    result = init(plain(id=[f"s{i}" for i in range(N)], user_id=[7] * N))
    assert result.exit_code == 0, result.stderr
    assert result.stdout.splitlines() == [
        "time: 'time' (the only column that reads as times; ISO 8601)",
        "label: 'label' (its name is the surest; class, as it has 2 different whole numbers)",
        "id: 'id' (its name says so, and it has another value in every row looked at)",
        "features: 1 columns of numbers; left out, as text or as names of something: 'user_id'",
        "made shop/ for 60 samples of 1 file, which stays where it is",
        "next:",
        "  cd shop",
        "  modyn-dagster check --data",
        "  modyn-dagster dataset import shop --by time:1d",
        "  modyn-dagster pipeline replay by_amount",
        "  modyn-dagster up    # Dagster and MLflow on it; `make help` lists more",
    ]
    assert dataset()["root"] == "../.."
    assert dataset()["batches"] == {"kind": "file", "pattern": "data.csv"}
    assert dataset()["id"] == {"source": "column", "column": "id"}
    assert dataset()["label"] == {"kind": "class", "n_classes": 2, "from": {"source": "column", "column": "label"}}
    assert training()["features"] == training("by_time")["features"] == ["x"]
    require_sound(monkeypatch)


TIMES: dict[str, tuple[str, list[Any], dict[str, str]]] = {
    "iso": ("time", DAYS, {}),
    "iso with zone": ("when", [f"{day}T12:00:00+02:00" for day in DAYS], {}),
    "day first": ("date", [f"{1 + i % 28:02d}/{1 + i % 12:02d}/2024" for i in range(N)], {"format": "%d/%m/%Y"}),
    "month first": ("date", [f"{1 + i % 12:02d}/{1 + i % 28:02d}/2024 08:30" for i in range(N)], {"format": "%m/%d/%Y %H:%M"}),
    "points": ("date", [f"{1 + i % 28:02d}.01.2024" for i in range(N)], {"format": "%d.%m.%Y"}),
    "digits": ("day", [f"202401{1 + i % 28:02d}" for i in range(N)], {"format": "%Y%m%d"}),
    "years": ("year", list(range(1960, 1960 + N)), {"format": "%Y"}),
    "seconds": ("ts", [1_700_000_000 + 3600 * i for i in range(N)], {}),
    "milliseconds": ("created_at", [1_700_000_000_000 + 3_600_000 * i for i in range(N)], {"unit": "ms"}),
    "microseconds": ("ts", [1_700_000_000_000_000 + 3_600_000_000 * i for i in range(N)], {"unit": "us"}),
}


@pytest.mark.parametrize("case", TIMES)
def test_times_are_found_however_they_are_written(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    column, values, expected = TIMES[case]
    result = init(table({"x": list(range(N)), column: values, "label": [i % 2 for i in range(N)]}))
    assert result.exit_code == 0, result.stderr
    assert dataset()["time"] == {"source": "column", "column": column, **expected}
    require_sound(monkeypatch)


def test_digits_keep_their_zeros(monkeypatch: pytest.MonkeyPatch) -> None:
    days = [f"{1 + i % 9:02d}012024" for i in range(N)]
    result = init(plain(time=days), "--time", "time", "--time-format", "%d%m%Y")
    assert result.exit_code == 0, result.stderr
    # Nine days; without their zeros they would read as others, up to the 30th.
    assert "--by time:6h\n" in result.stdout
    require_sound(monkeypatch)


LABELS: dict[str, tuple[list[Any], dict[str, Any]]] = {
    "texts": (["no", "yes"] * 30, {"kind": "class", "classes": ["no", "yes"]}),
    "truth values": (["true", "false"] * 30, {"kind": "class"}),
    "three": ([0, 1, 2] * 20, {"kind": "class", "n_classes": 3}),
    "fractions": ([i / 7 for i in range(N)], {"kind": "target"}),
    "many": (list(range(N)), {"kind": "target"}),
    "negative": ([-1, 1] * 30, {"kind": "target"}),
    "large": ([7, 90210] * 30, {"kind": "target"}),
}


@pytest.mark.parametrize("case", LABELS)
def test_the_kind_of_a_label_follows_from_its_values(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, expected = LABELS[case]
    result = init(plain(label=values))
    assert result.exit_code == 0, result.stderr
    found = {name: value for name, value in dataset()["label"].items() if name != "from"}
    assert found == expected
    require_sound(monkeypatch)


REFUSALS: dict[str, tuple[str | bytes, tuple[str, ...], str]] = {
    "empty": ("", (), "the file is empty"),
    "only a header": ("time,x,label\n", (), "no rows"),
    "one row": ("time,x,label\n2024-01-01,1,0\n", (), "one row only"),
    "no header": ("".join(f"{day},{i},{i % 2}\n" for i, day in enumerate(DAYS[3:], 3)), (), "header line"),
    "no header, repeated": ("2024-01-01,0,0\n2024-01-02,1,1\n", (), "header line"),
    "no header, numbers": ("1,2,3\n4,5,6\n7,8,9\n", (), "--time"),
    "no time": (table({"a": [1, 2], "label": [0, 1]}), (), "--time: no column reads as times"),
    "two times": (table({"begin": DAYS, "end": DAYS, "label": [0, 1] * 30}), (), "'begin', 'end' read as times: say with --time"),
    "both orders": (plain(time=["03/04/2024"] * N), (), "column 'time' reads as '%d/%m/%Y' and as '%m/%d/%Y'"),
    "no such time": (plain(), ("--time", "tmie"), "--time: must be a column of the data"),
    "no time in it": (plain(), ("--time", "x"), "--time: column 'x' cannot be read as times"),
    "other format": (plain(), ("--time", "time", "--time-format", "%d.%m.%Y"), "--time-format: column 'time', row 1"),
    "format alone": (plain(), ("--time-format", "%Y"), "give --time too"),
    "bad format": (plain(), ("--time", "time", "--time-format", "%Q"), "--time-format: column 'time'"),
    "no label": (
        table({"time": DAYS, "x": list(range(N))}),
        (),
        "say with --label which column is to be predicted (found ['x'])",
    ),
    "no such label": (plain(), ("--label", "lable"), "did you mean label?"),
    "empty label": (plain(label=[""] * N), (), "--label: column 'label' is empty in every row"),
    "a label is missing": (plain(label=["a", "b", " "] * 20), (), "'label' is empty in 20 rows, first in row 3"),
    "a number is missing": (plain(label=[1, ""] * 30), (), "'label' is empty in 30 rows, first in row 2"),
    "one label": (plain(label=[1] * N), (), "one value in all rows, 1"),
    "names as labels": (plain(label=[f"n{i}" for i in range(N)]), (), "another text in every row"),
    "fractions as classes": (
        plain(label=[0.5, 1.5] * 30),
        ("--label-kind", "class"),
        "--label-kind: column 'label' has fractions",
    ),
    "texts as targets": (plain(label=["a", "b"] * 30), ("--label-kind", "target"), "--label-kind: column 'label' has no numbers"),
    "negative classes": (plain(label=[-1, 1] * 30), ("--label-kind", "class"), "has -1"),
    "label and id": (plain(), ("--label", "x", "--id", "x"), "--id: column 'x' has another role already"),
    "time and label": (plain(), ("--label", "time"), "--label: column 'time' has another role already"),
    "repeated id": (plain(k=["a", "b"] * 30), ("--id", "k"), "'k' cannot be the id: 'a' stands in several rows"),
    "no id": (plain(), ("--id", "k"), "--id: must be a column of the data"),
    "fraction as id": (plain(k=[i / 2 for i in range(N)]), ("--id", "k"), "neither whole numbers nor text"),
    "nothing to learn from": (table({"time": DAYS, "id": list(range(N)), "label": [0, 1] * 30}), (), "no column to learn from"),
    "equal columns": ("time,x,x,label\n" + "2024-01-01,1,2,0\n" * 9, (), "x"),
    "no UTF-8": (b"time,x,label\n2024-01-01,\xe4,1\n2024-01-02,b,0\n", (), "UTF-8"),
    "ragged": (plain() + "1,2\n", (), "row 61"),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_what_cannot_be_told_is_one_sentence_with_column_and_option(case: str) -> None:
    content, options, expected = REFUSALS[case]
    result = init(content, *options)
    assert result.exit_code == 1, (result.stdout, result.exception)
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    assert expected in result.stderr
    assert "does not foresee" not in result.stderr
    assert here_now() == ["data.csv"]


@pytest.mark.parametrize(
    ("file", "content"), [("a.jsonl", b"[1]\n"), ("a.jsonl", b"{}\n{}\n"), ("a.parquet", b"PAR1 no"), ("a.txt", b"x")]
)
def test_damaged_and_other_files_are_refused(file: str, content: bytes) -> None:
    result = init(content, file=file)
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert file in result.stderr


@pytest.mark.parametrize("file", ["a.tmp/../none.csv", "none.csv", "."])
def test_a_path_without_data_is_refused(file: str) -> None:
    result = CliRunner().invoke(main, ["init", "shop", "--from", file])
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)
    assert "--from" in result.stderr


@pytest.mark.parametrize(
    "name", ["a/b", "/a", "..", ".a", "a.b", "a b", "ünï", "a-b", "1a", "class", "", "x" * 81, "a\nb", "a:b"]
)
def test_names_that_are_no_words_are_refused(name: str) -> None:
    result = CliRunner().invoke(main, ["init", "--", name])
    assert result.exit_code == 1
    assert "NAME: must be ASCII letters, digits and _, a letter first" in result.stderr
    assert here_now() == []


def test_a_refused_name_comes_with_one_that_is_allowed() -> None:
    assert "such as my_shop;" in CliRunner().invoke(main, ["init", "my-shop"]).stderr


def test_json_lines_and_parquet_and_semicolons_are_read_too(monkeypatch: pytest.MonkeyPatch, here: Path) -> None:
    rows = [{"time": day, "x": i, "label": "ab"[i % 2]} for i, day in enumerate(DAYS)]
    semicolons = plain().replace(",", ";").encode()
    pq.write_table(pa.Table.from_pylist(rows), "b.parquet")
    lines = "".join(json.dumps(row) + "\n" for row in rows).encode()
    for file, content in (("a.jsonl", lines), ("b.parquet", Path("b.parquet").read_bytes()), ("c.csv", semicolons)):
        result = init(content, file=file)
        assert result.exit_code == 0, result.stderr
        require_sound(monkeypatch)
        Path("shop").rename(here / f"of_{file[0]}")
    assert read_yaml(Path("of_c/datasets/shop.yaml"))["format"] == {"kind": "csv", "delimiter": ";"}


def test_a_folder_of_files_is_taken_file_by_file(monkeypatch: pytest.MonkeyPatch) -> None:
    Path("days").mkdir()
    for i in range(6):
        Path(f"days/{i}.csv").write_text(plain())
    result = CliRunner().invoke(main, ["init", "shop", "--from", "days"])
    assert result.exit_code == 0, result.stderr
    assert "for about 360 samples of 6 files, which stay where they are" in result.stdout
    assert "  modyn-dagster dataset import shop\n" in result.stdout
    assert (dataset()["root"], dataset()["batches"]["pattern"]) == ("../../days", "*.csv")
    require_sound(monkeypatch)


def test_a_large_file_is_judged_by_its_first_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(look, "WHOLE", 1 << 20)
    begin, n = np.datetime64("2024-01-01T00:00:00"), 200_000
    rows = [f"{begin + np.timedelta64(i, 'm')},{i % 10},{'ab'[i % 2]}\n" for i in range(n)]
    result = init("time,x,label\n" + "".join(rows))
    assert result.exit_code == 0, result.stderr
    [amount] = re.findall(r"for about ([\d,]+) samples", result.stdout)
    assert abs(int(amount.replace(",", "")) - n) < n / 50
    # 139 days; the first rows have 28 of them.
    assert "--by time:1w\n" in result.stdout
    assert read_yaml(Path("shop/pipelines/by_time.yaml"))["trigger"]["every"] == "4w"
    # Later rows may have other classes.
    assert "classes" not in dataset()["label"]
    require_sound(monkeypatch)


def test_a_folder_with_files_of_other_columns_is_refused() -> None:
    Path("days").mkdir()
    Path("days/1.csv").write_text(plain())
    Path("days/2.csv").write_text(plain(extra=["a"] * N))
    result = CliRunner().invoke(main, ["init", "shop", "--from", "days"])
    assert (result.exit_code, here_now()) == (1, ["days"])
    assert "2.csv: columns differ from the dataset's" in result.stderr
    Path("days/2.parquet").write_bytes(b"")
    result = CliRunner().invoke(main, ["init", "shop", "--from", "days"])
    assert "must be a folder with files of one kind; this one has .csv, .parquet" in result.stderr


def test_texts_are_learnt_from_where_there_are_no_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    result = init(table({"time": DAYS, "words": [f"word {i}" for i in range(N)], "label": ["a", "b"] * 30}))
    assert result.exit_code == 0, result.stderr
    assert training()["parser"]["text"]["columns"] == ["words"]
    require_sound(monkeypatch)


def test_texts_of_few_values_are_features_and_others_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    words = {"a: b": [["x", "y"][i % 2] for i in range(N)], "note": [f"note {i}" for i in range(N)]}
    result = init(table({"time": DAYS, "price": [i / 7 for i in range(N)], **words, "label": [i % 2 for i in range(N)]}))
    assert result.exit_code == 0, result.stderr
    assert "features: 1 columns of numbers and 1 of texts with few values; left out" in result.stdout
    assert training()["features"] == ["price", "a: b"]
    assert training()["encode"] == {"a: b": {"kind": "one_hot", "beyond": "unknown"}}
    require_sound(monkeypatch)


def test_structs_and_lists_of_parquet_are_features(monkeypatch: pytest.MonkeyPatch) -> None:
    places = [{"city": ["x", "y"][i % 2], "size": i / 3} for i in range(N)]
    content = {"time": DAYS, "place": places, "vector": [[i / 2, 1.0] for i in range(N)], "label": [i % 2 for i in range(N)]}
    file = io.BytesIO()
    pq.write_table(pa.table(content), file)
    result = init(file.getvalue(), file="data.parquet")
    assert result.exit_code == 0, result.stderr
    assert training()["features"] == ["place.size", "vector", "place.city"]
    assert list(training()["encode"]) == ["place.city"]
    require_sound(monkeypatch)
    refused = CliRunner().invoke(main, ["init", "other", "--from", "data.parquet", "--label", "vector"])
    assert "column 'vector' is empty in every row" in refused.stderr


@pytest.mark.parametrize("file", ["we[i]rd *?.csv", "a b: c#.csv", "quo\"te's.csv", "ünï.CSV"])
def test_files_of_any_name_are_found_again(file: str, monkeypatch: pytest.MonkeyPatch) -> None:
    result = init(plain(), file=file)
    assert result.exit_code == 0, result.stderr
    require_sound(monkeypatch)


def test_data_elsewhere_are_named_by_their_whole_path(tmp_path_factory: pytest.TempPathFactory) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    assert init(plain(), file=str(elsewhere / "data.csv")).exit_code == 0
    assert dataset()["root"] == str(elsewhere)


def test_what_is_there_is_never_overwritten(here: Path) -> None:
    (here / "shop").mkdir()
    (here / "shop" / "mine.txt").write_text("mine")
    for arguments in (["--template", "tabular"], ["--from", "data.csv"]):
        result = CliRunner().invoke(main, ["init", "shop", *arguments])
        assert result.exit_code == 1
        assert "is there already, and nothing is overwritten" in result.stderr
    assert [path.name for path in here.rglob("*")] == ["shop", "mine.txt"]
    (here / "file").touch()
    (here / "link").symlink_to(here / "nowhere")
    for name in ("file", "link"):
        assert CliRunner().invoke(main, ["init", name]).exit_code == 1


def test_a_folder_that_comes_meanwhile_is_left_alone(here: Path) -> None:
    with pytest.raises(ConfigError, match="there already"), new_folder(here / "shop") as folder:
        (folder / "a").touch()
        (here / "shop").mkdir()
        (here / "shop" / "mine.txt").touch()
    assert sorted(path.name for path in here.rglob("*")) == ["mine.txt", "shop"]


def test_an_error_leaves_nothing_and_the_rest_of_a_kill_is_removed_by_the_next_call(here: Path) -> None:
    with pytest.raises(ZeroDivisionError), new_folder(here / "shop") as folder:
        (folder / "a").touch()
        raise ZeroDivisionError
    assert here_now() == []
    killed, other = here / ".shop.0badcafe.tmp", here / ".shops.0badcafe.tmp"
    for each in (killed, other):
        each.mkdir()
        (each / "half.yaml").touch()
    with new_folder(here / "shop") as folder:
        # One that somebody still writes stays.
        with pytest.raises(ConfigError), new_folder(here / "shop"):
            (folder / "a").touch()
            (here / "shop").mkdir()
            (here / "shop" / "mine.txt").touch()
        (here / "shop" / "mine.txt").unlink()
    assert here_now() == [other.name, "shop"]
    assert here_now("shop") == ["a"]


def test_an_empty_folder_is_filled(here: Path) -> None:
    (here / "shop").mkdir()
    assert init(plain()).exit_code == 0
    assert (here / "shop" / "Makefile").is_file()


@pytest.mark.parametrize(
    "arguments", [["--from", "a.csv", "--template", "text"], ["--time", "t"], ["--template", "text", "--label", "x"]]
)
def test_options_that_do_not_fit_together_are_wrong_usage(arguments: list[str]) -> None:
    assert CliRunner().invoke(main, ["init", "shop", *arguments]).exit_code == 2


NAMES = st.text(st.characters(exclude_characters="\0", codec="utf-8"), min_size=1, max_size=20).filter(str.strip)
SPECIAL = st.sampled_from(
    [
        "a: b",
        "- x",
        "#c",
        "yes",
        "null",
        "1e3",
        "'",
        '"',
        "{a}",
        "[",
        "@NAME@",
        "&a",
        "*a",
        "!t",
        "%",
        "a\nb",
        "~",
        "x\ty",
        "𝛼",
        "=",
        "<<",
        "word " * 40,
    ]
)


@given(NAMES | SPECIAL)
def test_any_text_is_a_scalar_in_one_line(text: str) -> None:
    assert "\n" not in scalar(text)
    assert yaml.safe_load(f"a: [{scalar(text)}, {scalar(text)}] # c\nb: {scalar(text)} # d\n") == {"a": [text, text], "b": text}


@given(st.lists(NAMES | SPECIAL, min_size=4, max_size=4, unique_by=str.casefold))
def test_any_column_names_make_a_project_that_says_them(names: list[str]) -> None:
    time, x, label, id = names
    shutil.rmtree("shop", ignore_errors=True)
    content = table({time: DAYS, x: [i / 2 for i in range(N)], label: [i % 2 for i in range(N)], id: list(range(N))})
    options = [f"--time={time}", f"--label={label}", f"--id={id}"]
    result = init(content, *options)
    if result.exit_code == 1:
        # A name that says that the column names something is no feature, and the only one here.
        assert "no column to learn from" in result.stderr
        assert features(look_at(Path("data.csv")), [time, label, id]) == Features([], [], [], [x])
        assert not Path("shop").exists()
        return
    assert result.exit_code == 0, (result.stderr, result.exception)
    assert dataset()["time"]["column"] == time
    assert dataset()["label"]["from"]["column"] == label
    assert dataset()["id"]["column"] == id
    assert training()["features"] == [x]
    assert training() == training("by_time")
