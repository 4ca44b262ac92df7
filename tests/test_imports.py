"""Modules of user code, found while a process runs that may have looked for them before."""

import sys
from pathlib import Path

import pytest

from modyn_dagster.imports import find_module, module_exists


def test_a_module_is_found_though_its_folder_did_not_exist_when_another_was_looked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "code"
    monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
    assert not module_exists("a_module_of_tomorrow")
    folder.mkdir()
    (folder / "a_module_of_tomorrow.py").write_text("")
    assert module_exists("a_module_of_tomorrow")
    spec = find_module("a_module_of_tomorrow", [str(folder)])
    assert spec is not None and spec.origin == str(folder / "a_module_of_tomorrow.py")
