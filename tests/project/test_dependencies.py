"""Pins and what is installed: `constraints.txt` names exactly what this project runs with."""

import re
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import modyn_dagster

ROOT = Path(__file__).parents[2]
PROJECT = "modyn-dagster"
EXTRAS = {
    "dagster",
    "mlflow",
    "report",
    "onnx",
    "text",
    "pretrained",
    "demo",
    "drift-alibi",
    "drift-evidently",
    "drift-river",
    "ray",
    "test",
    "lint",
}
#: What installs, and what the native build needs, before anything of ours is there.
BUILD = {"setuptools", "wheel", "cython", "uv"}


def pins() -> dict[str, Version]:
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if line and not line.startswith("#")]
    found = [re.fullmatch(r"([A-Za-z0-9._-]+)==(\S+)", line) for line in lines]
    assert all(found), "every line is one exact pin"
    return {canonicalize_name(match[1]): Version(match[2]) for match in found if match}


def requirements_of(name: str, extras: set[str]) -> list[Requirement]:
    parsed = [Requirement(text) for text in requires(name) or []]
    return [r for r in parsed if r.marker is None or any(r.marker.evaluate({"extra": extra}) for extra in {"", *extras})]


def installed_with(name: str, extras: set[str]) -> dict[str, set[str]]:
    """Names of all distributions that ``name`` brings along, each with the extras asked of it."""
    found: dict[str, set[str]] = {}
    todo = [(name, extras)]
    while todo:
        current, wanted = todo.pop()
        for requirement in requirements_of(current, wanted):
            key = canonicalize_name(requirement.name)
            if key not in found or not requirement.extras <= found[key]:
                found[key] = found.get(key, set()) | requirement.extras
                todo.append((key, found[key]))
    return found


def version_of(name: str) -> Version | None:
    try:
        return Version(version(name))
    except PackageNotFoundError:
        return None


def test_every_dependency_and_what_it_brings_along_is_pinned_to_what_is_installed() -> None:
    pinned = pins()
    found = {name: version_of(name) for name in installed_with(PROJECT, EXTRAS)}
    # A CUDA build of torch brings packages that a CPU build does not.
    torch = {name for name in installed_with("torch", set()) if name.startswith(("nvidia", "cuda", "triton"))}
    wrong = {
        name: (str(there), str(pinned.get(name)))
        for name, there in found.items()
        if there is not None and name not in torch and (name not in pinned or pinned[name].public != there.public)
    }
    assert wrong == {}, "installed, pinned"


def test_nothing_is_pinned_that_nobody_needs() -> None:
    needed = set(installed_with(PROJECT, EXTRAS)) | BUILD
    assert sorted(set(pins()) - needed) == []


def test_every_pin_is_within_the_range_of_setup_py() -> None:
    pinned = pins()
    outside = [
        f"{requirement} pinned to {pinned[canonicalize_name(requirement.name)]}"
        for requirement in requirements_of(PROJECT, EXTRAS)
        if not requirement.specifier.contains(pinned[canonicalize_name(requirement.name)])
    ]
    assert outside == []


def test_the_installed_version_is_the_packages() -> None:
    assert version(PROJECT) == modyn_dagster.__version__
    assert f"\n## [{modyn_dagster.__version__}]" in (ROOT / "CHANGELOG.md").read_text()


def test_the_licence_is_named_and_there() -> None:
    assert "Apache License\n                           Version 2.0" in (ROOT / "LICENSE").read_text()
    assert 'license="Apache-2.0"' in (ROOT / "setup.py").read_text()
