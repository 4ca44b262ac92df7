"""Docstrings say what a thing is: they open with a noun of the field or an imperative, never with a riddle."""

import ast
import re
from collections.abc import Iterator

import pytest

from tests.house.modules import NATIVE, PACKAGE, ROOT, files

RIDDLE = re.compile(
    r"(?:What|Which|How|Where|When|Whether|Who|Whose|Why|Of|It|Its|They|Them|Their|Those|These|This|That|He|She|We|Our|You)\b"
)
#: Texts without any need no syntax tree, which takes much longer.
BEGINNING = re.compile(r'"""\s*' + RIDDLE.pattern)
DOCUMENTED = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)


def riddles(text: str) -> Iterator[tuple[int, str]]:
    """Line and opening of every docstring that has to be decoded."""
    if not BEGINNING.search(text):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, DOCUMENTED) and (found := ast.get_docstring(node)) and RIDDLE.match(found):
            yield getattr(node, "lineno", 1), found.splitlines()[0]


def test_docstrings_open_with_a_noun_or_an_imperative() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {opening}"
        for path in [*files(PACKAGE), *files(NATIVE), *files(ROOT / "tests")]
        for line, opening in riddles(path.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize("opening", ["What the ledger gets.", "Of the trigger.", "How to train: the loop.", "Its own seed."])
def test_a_riddle_is_found(opening: str) -> None:
    assert list(riddles(f'def f():\n    """{opening}"""\n')) == [(1, opening)]


@pytest.mark.parametrize("opening", ["Timings of a stage.", "Write prediction files.", "Whole windows.", "Offline strategies."])
def test_plain_openings_pass(opening: str) -> None:
    assert list(riddles(f'"""{opening}"""\n')) == []


def test_pages_of_native_code_follow_the_same_rule() -> None:
    docstring = re.compile(r'"""([^"]+)')
    native = [path for suffix in ("pyx", "pxd", "pyi") for path in sorted(NATIVE.rglob(f"*.{suffix}"))]
    assert native
    found = [f"{path.name}: {text[:60]}" for path in native for text in docstring.findall(path.read_text()) if RIDDLE.match(text)]
    assert found == []
