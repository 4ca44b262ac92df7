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
