"""Groups of programs: what is started is stopped, to the last descendant, and nothing else is."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest

from modyn_dagster.cli.ui.processes import MARK, Service, Services, stop_leftovers
from modyn_dagster.errors import ServiceFailed

pytestmark = pytest.mark.process

SLEEP = "import time; time.sleep(600)"
DEAF = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); open('ready', 'w').close(); {SLEEP}"
PARENT = f"""
import subprocess, sys, time
for session in (False, True):
    child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=session)
    print(child.pid, flush=True)
time.sleep(600)
"""


def python(name: str, program: str, answers: Callable[[], bool] = lambda: True) -> Service:
    return Service(name, [sys.executable, "-c", program], {}, answers)


def wait_for(condition: Callable[[], bool], seconds: float = 20) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def runs(pid: int) -> bool:
    return bool(psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)


def children_of(logs: Path) -> list[int]:
    log = logs / "parent.log"
    wait_for(lambda: len(log.read_text().split()) == 2)
    return [int(word) for word in log.read_text().split()]


@pytest.fixture
def services(tmp_path: Path) -> Iterator[Services]:
    services = Services(tmp_path / "logs", tmp_path)
    yield services
    services.stop(grace=0)


def test_stopping_ends_children_and_children_in_sessions_of_their_own(services: Services, tmp_path: Path) -> None:
    services.start(python("parent", PARENT))
    children = children_of(tmp_path / "logs")
    assert all(runs(pid) for pid in children)
    services.stop()
    assert not any(runs(pid) for pid in children)


def test_stopping_ends_what_does_not_listen_to_term(services: Services, tmp_path: Path) -> None:
    before = {process.pid for process in psutil.Process().children()}
    services.start(python("deaf", DEAF))
    wait_for((tmp_path / "ready").exists)
    [deaf] = [process.pid for process in psutil.Process().children() if process.pid not in before]
    services.stop(grace=0.2)
    assert not runs(deaf)


def test_stopping_leaves_everybody_else_alone(services: Services, tmp_path: Path) -> None:
    others = [
        subprocess.Popen([sys.executable, "-c", SLEEP]),
        subprocess.Popen([sys.executable, "-c", SLEEP], env={**os.environ, MARK: str(tmp_path / "logs of another")}),
    ]
    try:
        services.start(python("service", SLEEP))
        services.stop(grace=0)
        assert stop_leftovers(tmp_path / "logs") == 0
        assert [other.poll() for other in others] == [None, None]
    finally:
        for other in others:
            other.kill()
            other.wait()


def test_stopping_twice_is_stopping_once(services: Services) -> None:
    services.start(python("service", SLEEP))
    services.stop(grace=0)
    services.stop(grace=0)


def test_a_service_that_ends_is_named_with_the_end_of_its_log(services: Services, tmp_path: Path) -> None:
    services.start(python("healthy", SLEEP))
    services.start(python("sick", "import sys; [print('line', i) for i in range(100)]; sys.exit('no disk')"))
    with pytest.raises(ServiceFailed) as caught:
        services.watch()
    message = str(caught.value)
    assert message.startswith("sick ended with exit code 1, ")
    assert f"Its log is {tmp_path / 'logs' / 'sick.log'}, which ends with:\n" in message
    assert message.endswith("line 99\nno disk")
    assert "line 50" not in message


def test_a_service_that_was_killed_is_named_with_the_signal(services: Services) -> None:
    services.start(python("service", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    with pytest.raises(ServiceFailed, match="service ended with signal SIGKILL"):
        services.watch()


def test_waiting_ends_when_all_answer(services: Services, tmp_path: Path) -> None:
    quick = python("quick", SLEEP)
    slow = python("slow", f"open('slow', 'w').close(); {SLEEP}", answers=(tmp_path / "slow").exists)
    for service in (quick, slow):
        services.start(service)
    services.wait_until_answering([quick, slow], timeout=20)
    assert (tmp_path / "slow").exists()


def test_a_service_that_never_answers_is_an_error_that_names_it(services: Services) -> None:
    silent = python("silent", f"print('loading', flush=True); {SLEEP}", answers=lambda: False)
    services.start(silent)
    with pytest.raises(ServiceFailed, match=r"silent does not answer after 1 s"):
        services.wait_until_answering([silent], timeout=1)


def test_a_service_that_ends_instead_of_answering_is_reported_at_once(services: Services) -> None:
    doomed = python("doomed", "raise SystemExit(3)", answers=lambda: False)
    services.start(doomed)
    with pytest.raises(ServiceFailed, match="doomed ended with exit code 3"):
        services.wait_until_answering([doomed], timeout=600)


def test_a_service_gets_its_variables_and_those_of_this_process(services: Services, tmp_path: Path) -> None:
    program = f"import os; print(os.environ['COLOUR'], 'PATH' in os.environ, os.getcwd(), flush=True); {SLEEP}"
    services.start(Service("service", [sys.executable, "-c", program], {"COLOUR": "blue"}, lambda: True))
    wait_for(lambda: services.log_of("service").read_text() == f"blue True {tmp_path}\n")


SUPERVISOR = """
import sys, time
from pathlib import Path
from modyn_dagster.cli.ui.processes import Service, Services
services = Services(Path(sys.argv[1]), Path(sys.argv[1]).parent)
services.start(Service("parent", [sys.executable, "-c", sys.argv[2]], {}, lambda: True))
time.sleep(600)
"""


def test_what_a_killed_supervisor_left_behind_is_found_and_ended(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    supervisor = subprocess.Popen([sys.executable, "-c", SUPERVISOR, str(logs), PARENT])
    wait_for((logs / "parent.log").exists)
    children = children_of(logs)
    supervisor.send_signal(signal.SIGKILL)
    supervisor.wait()
    assert all(runs(pid) for pid in children)
    assert stop_leftovers(logs) == 3
    assert not any(runs(pid) for pid in children)
