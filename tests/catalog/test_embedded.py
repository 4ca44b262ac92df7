"""The embedded server: start, stop, ports, crashes, and damaged state."""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg2
import pytest
from sqlalchemy import URL

from modyn_dagster.catalog.access.authentication import as_uri
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded import server as server_module
from modyn_dagster.catalog.embedded.listening import free_port, port_is_free
from modyn_dagster.errors import ConfigError, DatabaseDown, ServerFailed

_START = """
import json, sys
from pathlib import Path
from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded import server as server_module
started = EmbeddedPostgres(Path(sys.argv[1])).start()
print(json.dumps([started.started_by_us, started.url.port]))
"""


def query(url: URL, statement: str) -> Any:
    """First column of the first row, over a connection of its own."""
    with closing(psycopg2.connect(as_uri(url), connect_timeout=5)) as connection:
        connection.autocommit = True
        with connection.cursor() as cursor:
            cursor.execute(statement)
            return cursor.fetchone()[0] if cursor.description else None


def pid_of(server: EmbeddedPostgres) -> int:
    pid = server.status().pid
    assert pid is not None
    return pid


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def test_the_constructor_touches_nothing(scratch: Path) -> None:
    server = EmbeddedPostgres(scratch / "home")
    assert not server.is_running()
    assert not server.stop()
    assert list(scratch.iterdir()) == []


def test_a_server_that_was_never_started_has_no_address_and_the_error_names_the_command(scratch: Path) -> None:
    with pytest.raises(DatabaseDown, match="modyn-dagster db start"):
        _ = EmbeddedPostgres(scratch / "home").url


def test_start_and_stop_do_nothing_the_second_time(new_server: EmbeddedPostgres) -> None:
    first, second = new_server.start(), new_server.start()
    assert first.started_by_us
    assert not second.started_by_us
    assert first.url == second.url == new_server.url
    assert new_server.is_running()
    assert new_server.stop()
    assert not new_server.is_running()
    assert not new_server.stop()


@pytest.mark.soak("laws-data")
def test_a_restart_keeps_port_password_and_data(server: EmbeddedPostgres) -> None:
    url = server.start().url
    query(url, "create table kept as select 42 as answer")
    server.stop()
    assert server.start().url == url
    assert query(url, "select answer from kept") == 42


def test_it_listens_in_its_folder_only_with_the_settings_of_the_documentation(running_server: EmbeddedPostgres) -> None:
    url = running_server.url
    expected = {
        "listen_addresses": "",
        "unix_socket_directories": f'"{running_server.status().data.parent}"',
        "unix_socket_permissions": "0700",
        "max_connections": "200",
        "shared_buffers": "256MB",
        "fsync": "on",
        "full_page_writes": "on",
        "synchronous_commit": "on",
        "jit": "off",
        "TimeZone": "UTC",
        "password_encryption": "scram-sha-256",
        "server_encoding": "UTF8",
        "data_checksums": "on",
    }
    assert {name: query(url, f"show {name}") for name in expected} == expected


def test_secrets_are_closed_to_others_and_nobody_is_trusted(running_server: EmbeddedPostgres) -> None:
    url = running_server.url
    assert stat.S_IMODE((running_server.home / "postgres.json").stat().st_mode) == 0o600
    data = running_server.status().data
    assert stat.S_IMODE(data.stat().st_mode) == stat.S_IMODE(data.parent.stat().st_mode) == 0o700
    rules = [line.split() for line in (data / "pg_hba.conf").read_text().splitlines() if line and line[0] != "#"]
    assert {rule[-1] for rule in rules} == {"scram-sha-256"}
    password = str(url.password).encode()
    holders = [file for file in running_server.home.rglob("*") if file.is_file() and password in file.read_bytes()]
    assert holders == [running_server.home / "postgres.json"]
    assert query(url, "select count(*) from pg_roles where rolname ~ '^modyn_' and rolcanlogin") == 3
    for wrong in ("", "wrong"):
        with pytest.raises(psycopg2.OperationalError, match="password"):
            query(url.set(password=wrong), "select 1")


def test_a_password_that_nobody_can_guess_is_hashed_once(running_server: EmbeddedPostgres) -> None:
    if int(query(running_server.url, "show server_version_num")) < 160_000:
        return
    stored = query(running_server.url, "select rolpassword from pg_authid where rolname = current_user")
    assert stored.startswith("SCRAM-SHA-256$1:")
    assert len(running_server.url.password or "") >= 32


def test_no_process_of_the_server_is_root(running_server: EmbeddedPostgres) -> None:
    uids = Path(f"/proc/{pid_of(running_server)}/status").read_text().split("Uid:")[1].split()[:4]
    assert set(uids) == {str(running_server.status().data.stat().st_uid)}
    assert "0" not in uids


def test_what_is_shown_of_a_started_server_hides_the_password(running_server: EmbeddedPostgres) -> None:
    started = running_server.start()
    assert str(started.url.password) not in f"{started} {started.url} {running_server.status()}"


def test_processes_that_start_at_once_share_one_server(new_server: EmbeddedPostgres) -> None:
    command = [sys.executable, "-c", _START, str(new_server.home)]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
    answers = [json.loads(process.communicate(timeout=60)[0]) for process in processes]
    assert sorted(started for started, _ in answers) == [False, False, True]
    assert {port for _, port in answers} == {new_server.url.port}


@pytest.mark.soak("laws-data")
def test_it_outlives_the_process_that_started_it(server: EmbeddedPostgres) -> None:
    subprocess.run([sys.executable, "-c", _START, str(server.home)], check=True, stdout=subprocess.DEVNULL)
    assert query(server.url, "select 1") == 1


@pytest.mark.soak("laws-data")
def test_after_a_kill_it_starts_again_with_everything_committed(server: EmbeddedPostgres) -> None:
    url = server.start().url
    query(url, "create table kept as select 42 as answer")
    os.kill(pid_of(server), signal.SIGKILL)
    # At once: the killed process may not be gone yet.
    again = server.start()
    assert again.started_by_us
    assert query(again.url, "select answer from kept") == 42


@pytest.mark.soak("laws-data")
def test_a_pid_file_whose_number_went_to_another_process_does_not_hold_it_back(server: EmbeddedPostgres) -> None:
    server.start()
    data = server.status().data
    stale = (data / "postmaster.pid").read_text().splitlines()
    server.stop()
    owner = data.stat().st_uid
    with subprocess.Popen(["sleep", "600"], user=owner if os.geteuid() == 0 else None) as stranger:
        (data / "postmaster.pid").write_text("\n".join([str(stranger.pid), *stale[1:]]))
        assert not server.is_running()
        assert not server.stop()
        assert server.start().started_by_us
        assert stranger.poll() is None
        stranger.kill()


@pytest.mark.soak("laws-data")
@pytest.mark.parametrize("content", ["", "no number\n"], ids=["empty", "garbage"])
def test_a_torn_pid_file_does_not_hold_it_back(server: EmbeddedPostgres, content: str) -> None:
    (server.status().data / "postmaster.pid").write_text(content)
    assert server.start().started_by_us


@pytest.mark.soak("laws-data")
def test_a_first_start_that_was_cut_off_is_finished_by_the_next(server: EmbeddedPostgres) -> None:
    data = server.status().data
    password = server.url.password
    # As after a kill inside initdb: half a data directory under its temporary name, the state already written.
    data.rename(data.with_name("data.new"))
    (data.with_name("data.new") / "PG_VERSION").unlink()
    data.with_name("password.new").write_text("old")
    assert query(server.start().url, "select 1") == 1
    assert server.url.password == password
    assert {"data.new", "password.new"}.isdisjoint(path.name for path in data.parent.iterdir())


def killed_while_starting(home: Path, program: str) -> None:
    """Start the server of ``home`` in a process that is killed while ``program`` works for it; that one goes on."""
    command = [sys.executable, "-c", _START, str(home)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starter:
        while program not in child_names(starter.pid):
            assert starter.poll() is None
        starter.kill()


def child_names(pid: int) -> set[str]:
    names = set()
    for child in psutil.Process(pid).children():
        with suppress(psutil.NoSuchProcess):
            names.add(child.name())
    return names


@pytest.mark.soak("laws-data")
def test_an_initdb_that_outlived_its_killed_starter_is_waited_for(new_server: EmbeddedPostgres) -> None:
    killed_while_starting(new_server.home, "initdb")
    assert query(new_server.start().url, "select 1") == 1
    assert {"data.new", "password.new"}.isdisjoint(path.name for path in new_server.status().data.parent.iterdir())


@pytest.mark.soak("laws-data")
def test_a_launch_that_outlived_its_killed_starter_is_waited_for(server: EmbeddedPostgres) -> None:
    killed_while_starting(server.home, "pg_ctl")
    assert query(server.start().url, "select 1") == 1
    assert server.stop()
    killed_while_starting(server.home, "pg_ctl")
    server.stop()
    assert not server.is_running()


@pytest.mark.soak("laws-data")
def test_it_moves_to_another_port_when_its_own_was_taken_meanwhile(server: EmbeddedPostgres) -> None:
    before = server.start(free_port()).url
    server.stop()
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", before.port))
        holder.listen()
        after = server.start().url
    assert after.port != before.port
    assert after == server.url
    assert query(after, "show port") == str(after.port)


@pytest.mark.soak("laws-data")
def test_a_port_taken_between_the_look_and_the_start_is_no_obstacle(
    server: EmbeddedPostgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = server.start(free_port()).url.port
    server.stop()
    real, looks = port_is_free, iter([True])
    monkeypatch.setattr(server_module, "port_is_free", lambda port: next(looks, False) if port == before else real(port))
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", before))
        holder.listen()
        assert query(server.start().url, "show port") == str(server.url.port) != str(before)


@pytest.mark.soak("laws-data")
def test_a_configured_port_is_used_and_remembered(server: EmbeddedPostgres, taken_port: int) -> None:
    with pytest.raises(ConfigError, match=f"free port.*{taken_port}"):
        server.start(port=taken_port)
    assert server.start().url.query["host"] == str(server.status().data.parent)
    with pytest.raises(ConfigError, match=r"must be its socket, .*db stop"):
        server.start(port=taken_port)
    server.stop()
    free = free_port()
    assert server.start(port=free).url.port == free
    with pytest.raises(ConfigError, match="db stop"):
        server.start(port=taken_port)
    assert not server.start(port=free).started_by_us
    server.stop()
    again = server.start().url
    assert (again.host, again.port, query(again, "show listen_addresses")) == ("127.0.0.1", free, "127.0.0.1")


@pytest.mark.soak("laws-data")
def test_a_server_that_does_not_start_shows_the_end_of_its_log(server: EmbeddedPostgres) -> None:
    configuration = server.status().data / "postgresql.conf"
    configuration.write_text(configuration.read_text() + "\nno_such_setting = 1\n")
    with pytest.raises(ServerFailed, match="no_such_setting") as caught:
        server.start()
    assert str(server.status().log) in str(caught.value)


@pytest.mark.soak("laws-data")
def test_a_home_that_moved_keeps_its_server(server: EmbeddedPostgres, scratch: Path) -> None:
    query(server.start().url, "create table kept as select 42 as answer")
    server.stop()
    moved = EmbeddedPostgres(server.home.rename(scratch / "moved"))
    assert query(moved.start().url, "select answer from kept") == 42
    moved.stop()


@pytest.mark.soak("laws-data")
def test_a_home_may_have_any_name(scratch: Path, server: EmbeddedPostgres) -> None:
    odd = EmbeddedPostgres(server.home.rename(scratch / 'it\'s a "home" for $USER; `id` \\ 100 % ü'))
    assert query(odd.start().url, "select 1") == 1
    assert odd.is_running()
    assert odd.stop()


@pytest.mark.soak("laws-data")
def test_a_home_reached_by_a_symbolic_link_is_the_same_server(server: EmbeddedPostgres, scratch: Path) -> None:
    url = server.start().url
    (scratch / "link").symlink_to(server.home)
    linked = EmbeddedPostgres(scratch / "link")
    assert linked.is_running()
    assert linked.start().url == url
    assert linked.stop()
    assert not server.is_running()


@pytest.mark.soak("laws-data")
def test_a_copy_of_a_running_home_is_a_server_of_its_own(server: EmbeddedPostgres, scratch: Path) -> None:
    copy = EmbeddedPostgres(scratch / "copy")
    subprocess.run(["cp", "-a", server.home, copy.home], check=True)
    original = server.start().url
    pid_file = server.status().data / "postmaster.pid"
    subprocess.run(["cp", "-a", pid_file, copy.status().data], check=True)
    assert not copy.is_running()
    started = copy.start()
    assert started.started_by_us
    assert started.url != original
    assert copy.stop()
    assert server.is_running()


def test_a_lost_password_file_is_an_error_not_an_empty_server(server: EmbeddedPostgres) -> None:
    state = (server.home / "postgres.json").rename(server.home / "kept.json")
    with pytest.raises(ServerFailed, match="restore the file, or move the folder away"):
        server.start()
    state.rename(server.home / "postgres.json")
    assert server.start().started_by_us


def test_a_damaged_state_file_is_named(scratch: Path) -> None:
    (scratch / "postgres.json").write_text('{"port": 1}')
    with pytest.raises(ServerFailed, match=r"postgres\.json: is damaged"):
        EmbeddedPostgres(scratch).start()
