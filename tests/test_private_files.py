"""Files of the home are closed to other accounts, and a home that is open is named."""

import os
import stat
from pathlib import Path

import pytest
from click.testing import CliRunner

from modyn_dagster.build import build_definitions
from modyn_dagster.cli import main
from modyn_dagster.private_files import keep_files_private, make_home, open_to_others
from modyn_dagster.settings import Settings
from modyn_dagster.storage import StagedFile, atomic_write

EXAMPLE = Path(__file__).parents[1] / "examples" / "baseball"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def assert_private(folder: Path) -> None:
    with atomic_write(folder / "below" / "atomic") as file:
        file.write(b"a")
    staged = StagedFile(folder / "below" / "staged")
    staged.write(b"a")
    staged.finish()
    staged.publish()
    (folder / "plain").write_text("a")
    assert [mode(folder / name) for name in ("below", "below/atomic", "below/staged", "plain")] == [0o700, 0o600, 0o600, 0o600]


def test_commands_write_for_their_own_account_alone(tmp_path: Path) -> None:
    os.umask(0o022)
    assert CliRunner().invoke(main, ["schema", "--output", str(tmp_path / "schemas")]).exit_code == 0
    assert {mode(path) for path in (tmp_path / "schemas").iterdir()} == {0o600}
    assert_private(tmp_path)


def test_processes_that_load_the_definitions_do_too(tmp_path: Path) -> None:
    os.umask(0o022)
    build_definitions(settings=Settings(EXAMPLE, tmp_path))
    assert_private(tmp_path)


def test_a_stricter_umask_stays() -> None:
    os.umask(0o177)
    keep_files_private()
    assert os.umask(0) == 0o177


@pytest.mark.parametrize(("account", "expected"), [(0, 0o711), (1000, 0o700)])
def test_a_new_home_can_be_entered_by_the_account_of_roots_server_only(
    account: int, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: account)
    tmp_path.chmod(0o750)
    os.umask(0o077)
    make_home(tmp_path / "new" / "home")
    make_home(tmp_path / "new" / "home")
    assert [mode(tmp_path / name) for name in (".", "new", "new/home")] == [0o750, expected, expected]
    assert open_to_others(tmp_path / "new" / "home") is None


@pytest.mark.parametrize(("account", "permissions"), [(0, 0o755), (0, 0o771), (1000, 0o711), (1000, 0o750)])
def test_an_open_home_is_named_with_the_remedy(
    account: int, permissions: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: account)
    tmp_path.chmod(permissions)
    text = str(open_to_others(tmp_path))
    assert f"{tmp_path} is open to other accounts (mode {permissions:04o})" in text
    assert f"`chmod {711 if account == 0 else 700} {tmp_path}`" in text
    assert mode(tmp_path) == permissions
    assert open_to_others(tmp_path / "missing") is None
