"""``modyn-dagster pipeline notify``: a test event through every channel, and a sentence about each."""

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from modyn_dagster.cli import main
from tests.pipeline.notification.receiver import receiving
from tests.projects.tiny import amount, write_project


def trial(folder: Path, monkeypatch: pytest.MonkeyPatch, notify: dict[str, Any] | None) -> Result:
    write_project(folder, [amount() if notify is None else amount(notify=notify)])
    monkeypatch.setenv("MODYN_PROJECT", str(folder))
    # Nothing answers there: the command does without.
    monkeypatch.setenv("MODYN_POSTGRES_URL", "postgresql://nobody@127.0.0.1:1/none")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return CliRunner().invoke(main, ["pipeline", "notify", "by_amount"], catch_exceptions=False)


@pytest.mark.process
def test_every_channel_gets_the_event_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        notify = {"webhook": {"url": receiver.url}, "command": ["cp", "/dev/stdin", "event.json"]}
        done = trial(tmp_path, monkeypatch, notify)
    assert (done.exit_code, done.stdout) == (0, f"webhook: ok ({receiver.origin})\ncommand: ok (cp)\n")
    sent = [json.loads(text) for text in (receiver.requests[0].body, (tmp_path / "event.json").read_text())]
    assert sent[0] == sent[1]
    assert (sent[0]["kind"], sent[0]["pipeline"]) == ("test", "by_amount")
    assert sent[0]["text"] == "by_amount: a test of its notifications; nothing happened"


@pytest.mark.process
def test_a_channel_that_fails_says_why_and_the_others_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with receiving() as receiver:
        receiver.answers = [401]
        done = trial(tmp_path, monkeypatch, {"webhook": {"url": receiver.url}, "command": ["true"]})
    assert done.exit_code == 1
    refusal = f"{receiver.origin} answers 401 Unauthorized, and would at every try"
    assert done.stdout == f"webhook: {refusal}\ncommand: ok (true)\n"


def test_a_pipeline_that_tells_nobody_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    done = trial(tmp_path, monkeypatch, None)
    assert done.exit_code == 1
    assert "pipeline by_amount: notify: names no channel that could be told" in done.stderr
