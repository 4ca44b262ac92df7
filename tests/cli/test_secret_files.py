"""Secrets by file: any secret setting may come from one, and a file that is wrong is refused without a word of its content."""

import traceback
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.catalog.database.urls import child_environment, service_environment
from modyn_dagster.cli.ui.guard.rules import Rules
from modyn_dagster.errors import ConfigError
from modyn_dagster.private_files import SECRETS, secret_setting
from modyn_dagster.resources.mlflow import MlflowResource
from modyn_dagster.settings import Settings

URL = "postgresql://writer:a%20b@db:5432"


def secret_file(folder: Path, content: bytes | str, mode: int = 0o600) -> dict[str, str]:
    path = folder / "secret"
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    path.chmod(mode)
    return {f"{name}_FILE": str(path) for name in SECRETS}


@pytest.mark.parametrize("mode", [0o600, 0o444, 0o640])
def test_every_secret_may_come_from_a_file_also_from_one_that_containers_mount(tmp_path: Path, mode: int) -> None:
    environment = secret_file(tmp_path, f"{URL}\n", mode)
    assert [secret_setting(environment, name) for name in SECRETS] == [URL] * len(SECRETS)
    settings = Settings.from_environment(environment)
    assert (settings.postgres_url, settings.postgres_owner_url) == (URL, URL)
    assert Rules.from_environment(environment).token == URL


def test_mlflow_s_address_may_come_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MODYN_MLFLOW_URI", raising=False)
    assert not MlflowResource().enabled
    monkeypatch.setenv("MODYN_MLFLOW_URI_FILE", secret_file(tmp_path, URL)["MODYN_MLFLOW_URI_FILE"])
    assert MlflowResource().enabled


@given(st.text(st.characters(min_codepoint=33, max_codepoint=0x2FF, categories=["L", "N", "P", "S"]), min_size=1, max_size=200))
def test_what_is_written_is_what_is_read_with_and_without_a_line_break(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    for end in ("", "\n", "\r\n"):
        environment = secret_file(tmp_path_factory.mktemp("secret"), text + end)
        assert secret_setting(environment, SECRETS[0]) == text


def test_a_variable_counts_before_its_file_which_is_not_read() -> None:
    environment = {"MODYN_POSTGRES_URL": URL, "MODYN_POSTGRES_URL_FILE": "/nowhere"}
    assert secret_setting(environment, "MODYN_POSTGRES_URL") == URL


def test_empty_variables_count_as_absent() -> None:
    assert secret_setting({"MODYN_UI_TOKEN": "", "MODYN_UI_TOKEN_FILE": ""}, "MODYN_UI_TOKEN") is None


@pytest.mark.parametrize(
    ("content", "mode", "rule"),
    [
        ("secret-of-two\nlines", 0o600, "in one line"),
        ("secret\0", 0o600, "in one line"),
        ("", 0o600, "in one line"),
        ("\n", 0o600, "in one line"),
        (b"secret\xff", 0o600, "UTF-8"),
        ("secret" * 4000, 0o600, "at most 16384 bytes"),
        ("secret", 0o666, "written by every account"),
        ("secret", 0o602, "written by every account"),
    ],
)
def test_a_file_that_is_none_of_a_secret_is_refused_by_its_path_alone(
    tmp_path: Path, content: bytes | str, mode: int, rule: str
) -> None:
    environment = secret_file(tmp_path, content, mode)
    with pytest.raises(ConfigError, match=rule) as caught:
        secret_setting(environment, "MODYN_UI_TOKEN")
    assert "MODYN_UI_TOKEN_FILE" in str(caught.value)
    assert str(tmp_path / "secret") in str(caught.value)
    assert "secret-of" not in str(caught.value)


@pytest.mark.parametrize("path", ["/nowhere/secret", "/dev/zero", "/"])
def test_what_is_no_file_is_refused(path: str) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read|must be a file"):
        secret_setting({"MODYN_UI_TOKEN_FILE": path}, "MODYN_UI_TOKEN")


@pytest.mark.parametrize("secret", [URL, "0123456789abcdef", "//writer:password@db/catalog"])
def test_a_secret_in_place_of_its_file_is_refused_and_not_shown(secret: str) -> None:
    with pytest.raises(ConfigError, match=r"MODYN_POSTGRES_URL_FILE: cannot be read.*'\.\.\.'") as caught:
        secret_setting({"MODYN_POSTGRES_URL_FILE": secret}, "MODYN_POSTGRES_URL")
    assert secret not in "".join(traceback.format_exception(caught.value))


def test_children_get_the_value_and_read_no_file_that_may_have_changed(tmp_path: Path) -> None:
    environment = secret_file(tmp_path, URL)
    settings = Settings.from_environment(environment)
    child = {**environment, **child_environment(settings)}
    (tmp_path / "secret").write_text("postgresql://elsewhere")
    assert Settings.from_environment(child).postgres_url == URL
    assert secret_setting(child, "MODYN_MLFLOW_URI") not in (None, "postgresql://elsewhere")


def test_a_service_never_learns_the_owner_of_the_schemas(tmp_path: Path) -> None:
    environment = secret_file(tmp_path, URL)
    settings = Settings.from_environment({**environment, "MODYN_POSTGRES_OWNER_URL": URL})
    given = {**environment, "MODYN_POSTGRES_OWNER_URL": URL, **service_environment(settings)}
    assert Settings.from_environment(given).postgres_owner_url is None
