"""Tutorial from data to a served model: its data and specs, its requests, and every command with the output that it quotes."""

import json
import runpy
import shlex
import shutil
import socket
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pytest
from click.testing import CliRunner

from examples.serving.app import Question
from modyn_dagster.cli import main
from tests.project.tutorials import ROOT, SERVING, quoted, require_same, run_in_shell

EXAMPLE: Final = ROOT / "examples" / "flights"
PATH: Final = f"{Path(sys.executable).parent}:/usr/bin:/bin"
PORT: Final = 8765


def requests() -> list[list[str]]:
    """Words of every call of curl."""
    commands = [each.command for each in quoted(SERVING) if each.command.startswith("curl ")]
    return [shlex.split(command.removesuffix("; echo")) for command in commands]


def curl_answers(outputs: list[tuple[int, str]]) -> list[Any]:
    """JSON that the requests were answered with."""
    asked = [each.command.startswith("curl ") for each in quoted(SERVING)]
    return [json.loads(output) for is_asked, (_, output) in zip(asked, outputs, strict=True) if is_asked]


def test_its_requests_ask_what_the_app_answers() -> None:
    paths = []
    for words in requests():
        [url] = [urlsplit(word) for word in words if word.startswith("http://")]
        paths.append(url.path)
        assert url.port == PORT
        if "-d" in words:
            Question.model_validate_json(words[words.index("-d") + 1])
    assert paths == ["/health", "/predict", "/predict", "/predict", "/reload", "/predict"]
    app = (EXAMPLE.parent / "serving" / "app.py").read_text(encoding="utf-8")
    assert all(f'"{path}")' in app for path in paths)


def test_the_stream_goes_on_from_the_same_files(tmp_path: Path) -> None:
    write = runpy.run_path(str(EXAMPLE / "make_data.py"))["write_stream"]
    assert write(tmp_path) == 2100
    first = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert write(tmp_path / "longer", 56) == 2800
    longer = {path.name: path.read_bytes() for path in (tmp_path / "longer").iterdir()}
    assert len(first) == 42
    assert first.items() < longer.items()


def test_the_specs_of_the_example_fit_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "project"
    shutil.copytree(EXAMPLE, folder, ignore=shutil.ignore_patterns("data"))
    runpy.run_path(str(EXAMPLE / "make_data.py"))["write_stream"](folder / "data", 3)
    monkeypatch.setenv("MODYN_PROJECT", str(folder))
    checked = CliRunner().invoke(main, ["check", "--data"])
    assert (checked.exit_code, checked.stderr) == (0, ""), checked.output


@pytest.mark.process
@pytest.mark.soak("production")
def test_the_tutorial_says_what_its_commands_say(scratch: Path) -> None:
    assert shutil.which("curl", path=PATH), "the tutorial asks its server by curl, which is not here: install the package curl"
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", PORT)), f"the tutorial's server wants port {PORT}, which another program has"
    followed, environment = quoted(SERVING), {"HOME": str(scratch), "PATH": PATH, "PYTHONPATH": str(ROOT)}
    # On a busy machine MLflow takes longer to start than a replay waits for a display.
    environment["MODYN_MLFLOW_TIMEOUT"] = "600"
    try:
        ran = run_in_shell([each.command for each in followed], environment, scratch / "log")
    finally:
        # The last command does so; a shell that was interrupted leaves the server behind.
        run_in_shell(["cd ~/flights && modyn-dagster db stop"], environment, scratch / "stopped")
    require_same(followed, ran, scratch)
    answers = curl_answers(ran)
    assert [answer.get("version") for answer in answers] == [2, 2, 2, None, 3, 3]
    assert len({answer["model"] for answer in answers if "model" in answer}) == 2
    probabilities = answers[2]["predictions"][0]
    assert probabilities[1] > 0.9
    assert sum(probabilities) == pytest.approx(1)
