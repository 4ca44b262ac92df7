"""Faults strike the calls that they name, on the files that they name, for as long as they are to."""

import errno
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from modyn_dagster.catalog.access.authentication import as_uri
from modyn_dagster.catalog.database.urls import database_url
from modyn_dagster.settings import Settings
from tests.faults import injector
from tests.faults.plan import FILE_CALLS, SOCKET_CALLS, Fault, Plan, Tally

pytestmark = pytest.mark.process

#: Tells each of some attempts to do something with a file by the number of its error, 0 for none.
_ATTEMPTS = """
import os, shutil, sys, time
from pathlib import Path
import pyarrow as pa
root = Path(sys.argv[1])
def arrow(name):
    with pa.OSFile(str(root / name), "wb") as file:
        file.write(b"x" * 1000)
def replaced(name):
    os.replace(root / "old", root / name)
def synced(name):
    fd = os.open(root / name, os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
attempts = {
    "write": lambda name: (root / name).write_bytes(b"x" * 1000) and None,
    "size": lambda name: (root / name).stat().st_size,
    "read": lambda name: (root / name).read_bytes() and None,
    "arrow": arrow, "replaced": replaced, "synced": synced,
    "removed": lambda name: (root / name).unlink(),
    "copied": lambda name: shutil.copyfile(root / "old", root / name) and None,
    "folder": lambda name: (root / name).mkdir(),
    "hour": lambda name: int(time.time() - time.monotonic()) // 3600,
}
for word in sys.argv[2:]:
    kind, _, name = word.partition(":")
    try:
        print(attempts[kind](name) or 0, flush=True)
    except OSError as error:
        print(-error.errno, flush=True)
"""

#: Connects twice, and tells the class of an error or the answer to a query.
_CONNECTIONS = """
import os, psycopg2
for _ in range(2):
    try:
        with psycopg2.connect(os.environ["URL"]) as connection, connection.cursor() as cursor:
            cursor.execute("select 1")
            print(cursor.fetchone()[0], flush=True)
        connection.close()
    except psycopg2.Error as error:
        print(type(error).__name__, flush=True)
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "root"
    root.mkdir()
    (root / "old").write_bytes(b"o" * 1000)
    return root


def attempt(library: Path, plan: Plan, *words: str) -> list[int]:
    environment = {**os.environ, **injector.environment(library, plan)}
    command = [sys.executable, "-c", _ATTEMPTS, str(plan.root), *words]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert ended.stderr == ""
    return [int(line) for line in ended.stdout.split()]


def planned(root: Path, *faults: Fault) -> Plan:
    return Plan(root.parent / "plan", root, faults=faults)


@pytest.mark.parametrize(
    ("calls", "error", "words"),
    [
        (("open",), "EMFILE", ["write:a.bin", "write:b.txt"]),
        (("write",), "ENOSPC", ["write:a.bin", "write:b.txt"]),
        (("write",), "ENOSPC", ["arrow:a.bin", "arrow:b.txt"]),
        (("write",), "EIO", ["copied:a.bin", "copied:b.txt"]),
        (("rename",), "EROFS", ["replaced:a.bin", "replaced:b.txt"]),
        (("mkdir",), "EROFS", ["folder:a.bin", "folder:b.txt"]),
    ],
)
def test_an_error_strikes_the_named_files_alone(
    library: Path, root: Path, calls: Sequence[str], error: str, words: list[str]
) -> None:
    plan = planned(root, Fault(calls, "fail", error=error, times=0, pattern="*.bin"))
    assert attempt(library, plan, *words) == [-getattr(errno, error), 0]
    assert plan.hits >= 1


def test_an_error_comes_after_some_calls_and_heals_after_some_more(library: Path, root: Path) -> None:
    plan = planned(root, Fault(["open"], "fail", error="EIO", after=1, times=2))
    assert attempt(library, plan, *["read:old"] * 5) == [0, -errno.EIO, -errno.EIO, 0, 0]
    assert plan.tallies() == [Tally(seen=5, hits=2)]


def test_several_faults_strike_in_one_run(library: Path, root: Path) -> None:
    plan = planned(root, Fault(["fsync"], "fail", error="EIO"), Fault(["remove"], "fail", error="EROFS"))
    words = ["synced:old", "synced:old", "removed:old", "removed:old"]
    assert attempt(library, plan, *words) == [-errno.EIO, 0, -errno.EROFS, 0]


def test_a_write_that_is_cut_short_goes_on_where_it_ended(library: Path, root: Path) -> None:
    plan = planned(root, Fault(["write", "read"], "short", times=5))
    assert attempt(library, plan, "write:a", "size:a", "arrow:b", "size:b", "copied:c", "size:c") == [0, 1000] * 3
    assert plan.hits == 5


def test_a_process_dies_at_the_call_that_is_named(library: Path, root: Path) -> None:
    plan = planned(root, Fault(["rename", "write"], "kill", after=2))
    assert attempt(library, plan, *[f"write:{n}" for n in range(5)]) == [0, 0]
    assert sorted(path.name for path in root.iterdir()) == ["0", "1", "2", "old"]
    assert [(root / str(n)).stat().st_size for n in range(3)] == [1000, 1000, 0]


def test_the_clock_jumps_while_other_clocks_go_on(library: Path, root: Path) -> None:
    plan = planned(root, Fault(["clock"], "jump", value=-7200, after=10, times=1))
    hours = attempt(library, plan, *["hour:"] * 20)
    assert max(hours) - min(hours) in (2, 3)


def test_files_elsewhere_are_left_alone(library: Path, root: Path) -> None:
    beside = root.with_name("rooted")
    beside.mkdir()
    plan = planned(root, Fault(FILE_CALLS, "fail", error="EIO", times=0))
    environment = {**os.environ, **injector.environment(library, plan)}
    code = f"open({str(beside / 'a')!r}, 'w').write('x')"
    subprocess.run([sys.executable, "-c", code], env=environment, check=True)
    assert attempt(library, plan, "read:old") == [-errno.EIO]


@pytest.mark.parametrize("call", SOCKET_CALLS)
def test_a_connection_to_postgres_breaks_at_the_call_that_is_named(
    library: Path, root: Path, settings: Settings, call: str
) -> None:
    url = database_url(settings, "modyn")
    host = url.query.get("host")
    peer = f"{host}/" if isinstance(host, str) and host.startswith("/") else f":{url.port}"
    plan = Plan(root.parent / "plan", root, peer, faults=[Fault([call], "fail", error="ECONNRESET")])
    ended = subprocess.run(
        [sys.executable, "-c", _CONNECTIONS],
        env={**os.environ, **injector.environment(library, plan), "URL": as_uri(url)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (ended.stdout, ended.stderr) == ("OperationalError\n1\n", "")
    assert plan.hits >= 1


def test_a_healed_plan_strikes_nothing(library: Path, root: Path) -> None:
    plan = planned(root, Fault(FILE_CALLS, "fail", error="EIO", times=0))
    plan.heal()
    assert attempt(library, plan, "read:old", "write:a", "removed:a") == [0, 0, 0]
