"""Commands: programs that get an event on their standard input, and say by their exit code whether they took it."""

import json
import os
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from modyn_dagster.backoff import wait_until
from modyn_dagster.errors import ChannelAway, ConfigError, NotDelivered, is_permanent
from modyn_dagster.pipeline.event import event_json
from modyn_dagster.pipeline.operate.notification.command import CommandChannel
from tests.pipeline.notification.receiver import EVENT

pytestmark = pytest.mark.process


def script(folder: Path, *lines: str, name: str = "tell.sh") -> Path:
    path = folder / name
    path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
    path.chmod(0o755)
    return path


def tell(folder: Path, *words: str, within: float = 60) -> None:
    CommandChannel(words, folder, source="pipeline shop").deliver(EVENT, "evt_1", within)


def status_of(process: int) -> str | None:
    """State of a process; None where it has gone."""
    with suppress(psutil.NoSuchProcess):
        return str(psutil.Process(process).status())
    return None


def test_a_program_reads_the_event_and_its_name_in_the_folder_of_the_project(tmp_path: Path) -> None:
    script(tmp_path, "cat > event.json", 'echo "$MODYN_EVENT_NAME|$MODYN_EVENT_KIND|$MODYN_EVENT_ID" > names')
    tell(tmp_path, "./tell.sh")
    assert json.loads((tmp_path / "event.json").read_text()) == json.loads(event_json(EVENT))
    assert (tmp_path / "names").read_text() == f"{EVENT.name}|score_below|evt_1\n"


def test_arguments_arrive_as_they_are_and_no_shell_reads_them(tmp_path: Path) -> None:
    arguments = ["two words", "$HOME", "; touch broken", "*", "", "é"]
    script(tmp_path, 'printf "%s\\n" "$@" > arguments')
    tell(tmp_path, "./tell.sh", *arguments)
    assert (tmp_path / "arguments").read_text() == "".join(f"{argument}\n" for argument in arguments)
    assert not (tmp_path / "broken").exists()


def test_a_program_is_found_on_the_path_by_its_place_and_below_the_project(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bin").mkdir()
    path = script(tmp_path / "bin", 'echo told >> "$PWD/heard"', name="tell-the-shop")
    with pytest.raises(ConfigError, match=r"pipeline shop: notify\.command: must be on PATH"):
        tell(tmp_path, "tell-the-shop")
    monkeypatch.setenv("PATH", f"{path.parent}{os.pathsep}{os.environ['PATH']}")
    for word in ("tell-the-shop", str(path), "bin/tell-the-shop"):
        tell(tmp_path, word)
    assert (tmp_path / "heard").read_text() == "told\n" * 3


def test_a_program_that_does_not_read_is_no_error(tmp_path: Path) -> None:
    tell(tmp_path, "true")


def test_another_exit_code_is_an_error_with_the_end_of_what_was_said(tmp_path: Path) -> None:
    script(tmp_path, "printf 'a%.0s' $(seq 600) >&2", "echo ' the messenger is out' >&2", "exit 7")
    with pytest.raises(NotDelivered) as caught:
        tell(tmp_path, "./tell.sh")
    head, _, said = str(caught.value).rpartition(": ")
    assert head == "./tell.sh ended with exit code 7"
    assert (len(said), said.endswith("a the messenger is out")) == (500, True)
    assert not is_permanent(caught.value)


def test_a_signal_is_an_error_by_its_name(tmp_path: Path) -> None:
    script(tmp_path, "kill -USR1 $$")
    with pytest.raises(NotDelivered, match=r"\./tell\.sh ended with signal SIGUSR1$"):
        tell(tmp_path, "./tell.sh")


def test_a_program_that_hangs_is_ended_with_its_children(tmp_path: Path) -> None:
    script(tmp_path, "echo waiting >&2", "sleep 600 & echo $! > child", "wait")
    with pytest.raises(ChannelAway, match=r"\./tell\.sh was ended after 1 seconds: waiting"):
        tell(tmp_path, "./tell.sh", within=1)
    child = int((tmp_path / "child").read_text())
    # Nobody may wait for it here: then it stays as a zombie.
    assert wait_until(lambda: status_of(child) in (None, psutil.STATUS_ZOMBIE), timeout=30, first=0.01)


def test_what_a_program_leaves_running_is_not_waited_for(tmp_path: Path) -> None:
    script(tmp_path, "sleep 600 &", "echo $! > child")
    tell(tmp_path, "./tell.sh")
    os.kill(int((tmp_path / "child").read_text()), 9)


@pytest.mark.parametrize("mode", [0o644, None])
def test_a_file_that_is_no_program_is_refused(tmp_path: Path, mode: int | None) -> None:
    if mode is not None:
        script(tmp_path, "exit 0").chmod(mode)
    with pytest.raises(ConfigError, match=r"notify\.command: must be a file that may be executed, from the project's folder"):
        tell(tmp_path, "./tell.sh")


def test_a_program_that_the_system_cannot_start_is_an_error_of_the_channel(tmp_path: Path) -> None:
    path = tmp_path / "tell"
    path.write_text("#!/nowhere/interpreter\n")
    path.chmod(0o755)
    with pytest.raises(NotDelivered, match=r"\./tell cannot be started: No such file or directory"):
        tell(tmp_path, "./tell")
