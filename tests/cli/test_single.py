"""Only one `modyn-dagster ui` per folder of state."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from modyn_dagster.cli.ui.serving import exclusive_lock
from modyn_dagster.errors import AlreadyRunning

HOLDER = """
import sys, time
from pathlib import Path
from modyn_dagster.cli.ui.serving import exclusive_lock
with exclusive_lock(Path(sys.argv[1])) as announce:
    announce({"Dagster": "http://127.0.0.1:3000"})
    print("held", flush=True)
    time.sleep(600)
"""


def test_a_second_holder_is_refused_with_the_process_and_the_urls_of_the_first(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path) as announce:
        announce({"Dagster": "http://127.0.0.1:3000", "MLflow": "http://127.0.0.1:5000"})
        with pytest.raises(AlreadyRunning) as caught, exclusive_lock(tmp_path):
            pass
    expected = f"process {os.getpid()}, Dagster at http://127.0.0.1:3000, MLflow at http://127.0.0.1:5000"
    assert caught.value.holder == expected
    assert expected in str(caught.value)


def test_a_holder_without_urls_yet_is_starting(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path), pytest.raises(AlreadyRunning, match="still starting"), exclusive_lock(tmp_path):
        pass


def test_a_holder_without_a_note_yet_is_just_starting(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path) as announce:
        (tmp_path / "ui.json").unlink()
        with pytest.raises(AlreadyRunning, match="just starting"), exclusive_lock(tmp_path):
            pass
        announce({})


def test_other_folders_are_not_concerned(tmp_path: Path) -> None:
    with exclusive_lock(tmp_path / "one"), exclusive_lock(tmp_path / "two"):
        pass


def test_the_folder_is_free_again_afterwards_also_after_an_error(tmp_path: Path) -> None:
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt), exclusive_lock(tmp_path):
            raise KeyboardInterrupt
    assert not (tmp_path / "ui.json").exists()


@pytest.mark.process
def test_a_killed_holder_blocks_nobody(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLDER, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    with holder.stdout:
        assert holder.stdout.readline() == "held\n"
    with pytest.raises(AlreadyRunning, match=f"process {holder.pid}, Dagster at"), exclusive_lock(tmp_path):
        pass
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    with exclusive_lock(tmp_path):
        pass
