"""Modules of user code, found while a process runs that may have looked for them before."""

import sys
from pathlib import Path

import pytest

from modyn_dagster.imports import CodeSources, find_module, module_exists


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


@pytest.mark.parametrize("levels", [1, 2, 3, 5])
def test_a_module_is_found_at_any_depth_of_folders_without_init_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, levels: int
) -> None:
    names = [f"depth_{level}" for level in range(levels)]
    folder = tmp_path.joinpath(*names)
    folder.mkdir(parents=True)
    (folder / "leaf.py").write_text("")
    for depth in range(1, levels + 1):
        package = ".".join(names[:depth])
        spec = find_module(package, [str(tmp_path)])
        assert spec is not None
        assert spec.submodule_search_locations == [str(tmp_path.joinpath(*names[:depth]))]
        assert find_module(f"{package}.absent", [str(tmp_path)]) is None
    leaf = find_module(f"{package}.leaf", [str(tmp_path)])
    assert leaf is not None and leaf.origin == str(folder / "leaf.py")
    assert CodeSources(tmp_path).refusal(f"{package}.leaf") is None
    monkeypatch.syspath_prepend(tmp_path)
    assert module_exists(f"{package}.leaf")
    assert not any(name.startswith("depth_") for name in sys.modules), "nothing was imported"


def test_a_namespace_package_in_two_places_has_the_modules_of_both(tmp_path: Path) -> None:
    for place in ("one", "two"):
        (tmp_path / place / "split" / "deeper").mkdir(parents=True)
        (tmp_path / place / "split" / "deeper" / f"{place}.py").write_text("")
    folders = [str(tmp_path / place) for place in ("one", "two")]
    for place in ("one", "two"):
        spec = find_module(f"split.deeper.{place}", folders)
        assert spec is not None and spec.origin == str(tmp_path / place / "split" / "deeper" / f"{place}.py")
