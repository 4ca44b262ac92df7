"""Tests look at behaviour and public names: a leading underscore is left to the object, or the module, that has it."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.modules import ROOT, files

#: Names of others with an underscore that are documented, or without a public counterpart.
ALLOWED = {
    "_exit": "ends a forked process: os",
    "_replace": "copies a named tuple: collections",
    "_assign_work_unit": "a scheduler of tests: xdist",
    "_forward_hooks": "what listens to a module: torch",
    "_forward_pre_hooks": "what listens to a module: torch",
    "_put_file": "how an object is put in parts: s3fs",
}
#: Packages whose private modules tests need.
ALLOWED_PACKAGES = {"dagster"}
#: Texts without any need no syntax tree, which takes much longer: after a dot, at the beginning of a text, or imported.
MAY_BE_PRIVATE = re.compile(
    r"""(?<!self)(?<!cls)\._[a-z]|["']_[a-z]|\bimport\b.*\b_[a-z]|^    _[a-z]\w*,$""", re.IGNORECASE | re.MULTILINE
)
PATCHES = {"setattr", "getattr", "delattr", "hasattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name.strip("_") != "" and name not in ALLOWED


def private_names(text: str) -> Iterator[tuple[int, str]]:
    """Line and name of every private name of something else, also of one that is patched by its name."""
    if not MAY_BE_PRIVATE.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and is_private(node.attr):
            if not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls")):
                yield node.lineno, node.attr
        elif isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] not in ALLOWED_PACKAGES:
            # Modules of kernels begin with an underscore; what they offer to tests does not.
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in PATCHES:
            given = [each.value for each in node.args[:2] if isinstance(each, ast.Constant) and isinstance(each.value, str)]
            named = [name.rpartition(".")[2] for name in given]
            yield from ((node.lineno, name) for name in named if is_private(name))


def test_tests_leave_private_names_alone() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in files(ROOT / "tests")
        for line, name in private_names(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    "text", ["store._files", "a.b()._files.c", "from a import _files", "setattr(a, '_files', 1)", "patch.setattr('a._files', 1)"]
)
def test_a_private_name_is_found(text: str) -> None:
    assert list(private_names(text)) == [(1, "_files")]


@pytest.mark.parametrize(
    "text", ["self._files", "cls._files", "os._exit(0)", "from dagster._core import x", "a.__dict__", "from k._scan import find"]
)
def test_names_of_its_own_and_of_others_may_be_used(text: str) -> None:
    assert list(private_names(text)) == []
