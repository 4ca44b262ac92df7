"""Tutorials that can be followed: their data, their specs, and every command with the output that they quote."""

import re
import runpy
import shlex
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from click.testing import CliRunner

from modyn_dagster.cli import main
from modyn_dagster.spec.load import load_project
from tests.project.test_runbook import require_command
from tests.project.tutorials import ROOT, SERVING, TUTORIALS, Quoted, quoted, require_same, run_in_shell, without_numbers

EXAMPLE = ROOT / "examples" / "clicks"


@pytest.fixture(scope="module")
def script() -> dict[str, Any]:
    return runpy.run_path(str(EXAMPLE / "make_data.py"))


@pytest.fixture(scope="module")
def project(script: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the example with its data."""
    folder = tmp_path_factory.mktemp("clicks") / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data"))
    assert script["write_stream"](folder / "data") == (21_840, 21_131)
    return folder


def commands_of(line: str) -> Iterator[list[str]]:
    """Words of every call of modyn-dagster in a line of shell, without redirections."""
    # Other programs may have one of these characters in their texts.
    for part in re.split(r"\||;|&&", line) if "modyn-dagster" in line else ():
        words = [word for word in shlex.split(re.sub(r" 2?>.*", "", part)) if "=" not in word or word.startswith("attributes")]
        if words[:1] == ["modyn-dagster"]:
            yield words[1:]


@pytest.mark.parametrize("name", [*TUTORIALS, SERVING])
def test_every_command_of_a_tutorial_exists(name: str) -> None:
    calls = [words for each in quoted(name) for words in commands_of(each.command)]
    assert len(calls) >= 5
    for words in calls:
        require_command(words)


def test_a_command_is_told_from_its_output() -> None:
    [*_, (command, output)] = quoted(TUTORIALS[1])
    assert command == "modyn-dagster db stop"
    assert output == "Postgres stopped\n"
    assert without_numbers("12.5 s, 3a09c4e7b2d1, ───\n  a") == without_numbers("3 s,\n 0123456789ab, a")
    assert without_numbers("3 models made again") != without_numbers("3 models withdrawn")


def test_the_stream_of_the_example_is_drawn_again_file_by_file(script: dict[str, Any], project: Path) -> None:
    files = {path: path.stat().st_mtime_ns for path in project.glob("data/*/*")}
    script["write_stream"](project / "data")
    assert {path: path.stat().st_mtime_ns for path in project.glob("data/*/*")} == files


def test_the_stream_without_a_user_lacks_their_clicks_and_labels_alone(
    script: dict[str, Any], project: Path, tmp_path: Path
) -> None:
    assert script["write_stream"](tmp_path, without=17) == (21_840 - 53, 21_131 - 50)
    for path in sorted((project / "data" / "clicks").iterdir())[:20]:
        table = pq.read_table(path)
        kept = table.filter(np.asarray(table["user"]) != 17)
        assert pq.read_table(tmp_path / "clicks" / path.name).equals(kept)


def test_purchases_are_told_early_and_their_absence_late_or_never(script: dict[str, Any]) -> None:
    days = np.linspace(0, 100, 20_000)
    bought = np.arange(20_000) % 2 == 0
    told = script["labels"](np.random.default_rng(1), days, bought)
    first: dict[int, tuple[float, int]] = {}
    for known, number, label in told:
        first.setdefault(number, (known - days[number], label))
    delays = {label: np.array([delay for delay, each in first.values() if each == label]) for label in (0, 1)}
    assert len(delays[1]) == bought.sum()
    assert len(delays[0]) == pytest.approx(0.9 * (~bought).sum(), rel=0.02)
    assert [delays[1].max(), delays[0].min(), delays[0].max()] == pytest.approx([10, 4, 14], abs=0.1)
    assert np.mean(delays[1] < 3) > 0.6
    corrections = len(told) - len(first)
    assert corrections == pytest.approx(bought.sum() / 12, rel=0.1)


def test_the_specs_of_the_example_fit_its_data(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MODYN_PROJECT", str(project))
    checked = CliRunner().invoke(main, ["check", "--data"])
    assert (checked.exit_code, checked.stderr) == (0, ""), checked.output
    assert "no errors (datasets: 2, pipelines: 3)" in checked.stdout


def test_the_second_dataset_differs_in_the_default_label_alone() -> None:
    datasets = load_project(EXAMPLE).datasets
    clicks, assumed = (datasets[name].model_dump(exclude={"name", "description"}) for name in ("clicks", "clicks_assumed"))
    assert assumed["label"].pop("default_after") == {"label": 0, "after": "1d"}
    assert assumed == clicks


@pytest.mark.process
@pytest.mark.soak("labels")
def test_the_tutorials_say_what_their_commands_say(scratch: Path) -> None:
    """Both tutorials in one shell, from the empty folder on."""
    followed: list[Quoted] = [each for name in TUTORIALS for each in quoted(name)]
    environment = {"HOME": str(scratch), "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
    try:
        ran = run_in_shell([each.command for each in followed], environment, scratch / "log")
    finally:
        # The last command does so; a shell that was interrupted leaves the server behind.
        run_in_shell(["cd ~/clicks && modyn-dagster db stop"], environment, scratch / "stopped")
    require_same(followed, ran, scratch)
