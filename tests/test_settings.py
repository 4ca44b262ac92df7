"""Settings of a process from its environment, and for the environment of its children."""

from dataclasses import replace
from pathlib import Path

import pytest

from modyn_dagster.errors import ConfigError
from modyn_dagster.settings import Settings

TIMES = ("MODYN_MAX_WAIT", "MODYN_MLFLOW_TIMEOUT", "MODYN_RANK_TIMEOUT")


def test_children_have_the_settings_of_their_parent() -> None:
    settings = Settings(Path("/project"), Path("/home"), max_wait=5, mlflow_timeout=2.5, ranks="elsewhere", rank_timeout=7)
    assert Settings.from_environment(settings.environment()) == settings
    shared = replace(settings, files="s3://bucket/modyn", cache_size=1_500_000_000)
    assert Settings.from_environment(shared.environment()) == shared
    defaults = replace(settings, max_wait=3600, mlflow_timeout=60, ranks="processes", rank_timeout=600)
    assert Settings.from_environment(defaults.environment()) == defaults


@pytest.mark.parametrize(
    ("variable", "text"),
    [(name, text) for name in TIMES for text in ("soon", "-1", "nan", "inf")]
    + [("MODYN_MLFLOW_TIMEOUT", "0"), ("MODYN_RANK_TIMEOUT", "0")],
)
def test_a_time_that_is_none_is_refused_by_its_name(variable: str, text: str) -> None:
    with pytest.raises(ConfigError, match=rf"{variable}: must be a number of seconds.*found '{text}'"):
        Settings.from_environment({variable: text})


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("", None),
        ("/mnt/shared/", "file:///mnt/shared"),
        ("s3://bucket/modyn/", "s3://bucket/modyn"),
        ("memory://files", "memory://files"),
    ],
)
def test_the_store_of_files_is_a_url_or_an_absolute_folder(text: str, url: str | None) -> None:
    assert Settings.from_environment({"MODYN_FILES": text}).files == url


@pytest.mark.parametrize(
    "text",
    [
        "shared",
        "./shared",
        "s3://",
        "s3:///",
        "://bucket",
        "s3://bucket/../other",
        "/mnt/../other",
        "file://srv/x",
        "local://x/y",
    ],
)
def test_a_store_of_files_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match="MODYN_FILES: must be an absolute folder, or a URL"):
        Settings.from_environment({"MODYN_FILES": text})


@pytest.mark.parametrize("text", ["s3://key:secret@bucket/modyn", "https://host/files?token=secret"])
def test_a_store_of_files_shows_no_secret(text: str) -> None:
    with pytest.raises(ConfigError, match="must not have a user, a password or a query") as raised:
        Settings.from_environment({"MODYN_FILES": text})
    assert "secret" not in str(raised.value)


@pytest.mark.parametrize(("text", "n"), [("500 MB", 500_000_000), ("1.5TB", 1_500_000_000_000), ("7 kb", 7000), ("9 B", 9)])
def test_the_size_of_the_cache_has_a_unit(text: str, n: int) -> None:
    assert Settings.from_environment({"MODYN_CACHE_SIZE": text}).cache_size == n


@pytest.mark.parametrize("text", ["0 GB", "20", "-1 GB", "many", "1e9 B", "5 GiB"])
def test_a_size_that_is_none_is_refused_by_its_name(text: str) -> None:
    with pytest.raises(ConfigError, match=rf"MODYN_CACHE_SIZE: must be a size such as.*found '{text}'"):
        Settings.from_environment({"MODYN_CACHE_SIZE": text})
