"""Rooms of the house: imports between the children of a folder form no circle, and heaps do not grow back."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise
from pathlib import Path

import pytest

from tests.house.modules import NATIVE, PACKAGE, Import, all_imports, files, imports_of, name_of

#: A module is short below so many lines.
SHORT = 60
#: Short modules whose only importer stands in the same folder. The number may fall, never grow.
PARAGRAPHS = 5
#: Files a folder shows at one level.
DOZEN = 12


def children(imports: Iterable[Import]) -> Mapping[str, Mapping[str, dict[str, Import]]]:
    """Imports between the children of every folder: files and subfolders, with one example each."""
    found: dict[str, dict[str, dict[str, Import]]] = defaultdict(lambda: defaultdict(dict))
    for each in imports:
        importer, imported = each.importer.split("."), each.module.split(".")
        depth = next((i for i, (a, b) in enumerate(zip(importer, imported)) if a != b), None)
        if depth:
            found[".".join(importer[:depth])][importer[depth]].setdefault(imported[depth], each)
    return found


def circle(edges: Mapping[str, Mapping[str, Import]]) -> list[str]:
    """Imports that lead from a child of a folder back to it; empty where there is no circle."""
    try:
        TopologicalSorter({child: set(imported) for child, imported in edges.items()}).prepare()
    except CycleError as error:
        way = list(reversed(error.args[1]))
        return [str(edges[a][b]) for a, b in pairwise(way)]
    return []


@pytest.mark.parametrize("root", [PACKAGE, NATIVE], ids=["modyn_dagster", "fastpath"])
def test_no_folder_holds_a_circle(root: Path) -> None:
    folders = children(all_imports(root))
    assert folders
    assert {folder: found for folder, edges in folders.items() if (found := circle(edges))} == {}


def test_a_circle_is_found() -> None:
    there = Import(PACKAGE / "spec" / "load.py", 1, "modyn_dagster.spec.base")
    back = Import(PACKAGE / "spec" / "base.py", 1, "modyn_dagster.spec.load")
    assert circle(children([there])["modyn_dagster.spec"]) == []
    assert len(circle(children([there, back])["modyn_dagster.spec"])) == 2


def paragraphs() -> list[str]:
    """Short modules with exactly one importer, which stands next door."""
    importers: dict[str, set[str]] = defaultdict(set)
    for path in files():
        for each in imports_of(path):
            if each.importer != each.module:
                importers[each.module].add(each.importer)
    return [
        name_of(path)
        for path in files()
        if path.name != "__init__.py"
        and len(path.read_text(encoding="utf-8").splitlines()) < SHORT
        and len(importers[name_of(path)]) == 1
        and next(iter(importers[name_of(path)])).rpartition(".")[0] == name_of(path).rpartition(".")[0]
    ]


def test_paragraphs_of_a_neighbour_do_not_become_modules_again() -> None:
    found = paragraphs()
    assert len(found) <= PARAGRAPHS, found


def test_a_folder_shows_at_most_a_dozen_files() -> None:
    shown = Counter(path.parent.relative_to(PACKAGE).as_posix() for path in files() if path.name != "__init__.py")
    # Revisions of the schema are a history with a file each, which only grows.
    del shown["catalog/migrations/versions"]
    assert {folder: count for folder, count in shown.items() if count > DOZEN} == {}
