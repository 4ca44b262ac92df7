"""The digest of code changes exactly when what is done changes."""

import importlib
import sys
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from modyn_dagster.values.code_digest import code_digest

HELPER = "def weight(x):\n    return 2 * x\n\nSCALE = 3\n"
METRIC = """
import metrics_of_mine.helper
from metrics_of_mine import helper as aid
from metrics_of_mine.helper import weight
import numpy as np

COSTS = {"late": 2.0, "early": (1, 2)}

class Part:
    factor = 1
    def of(self, x):
        return x * self.factor

def judged(outputs, truth, power=2):
    \"\"\"Judge.\"\"\"
    inner = lambda x: x + 1
    return float(np.sum(outputs)) ** power + weight(COSTS["late"]) + aid.SCALE + Part().of(1) + inner(0)
"""


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., Callable[..., Any]]]:
    """The function ``judged`` of a package made of these texts, in a new folder every time."""
    numbers = count()

    def loaded(metric: str = METRIC, helper: str = HELPER) -> Callable[..., Any]:
        package = tmp_path / str(next(numbers)) / "metrics_of_mine"
        package.mkdir(parents=True)
        for name, text in (("__init__", ""), ("helper", helper), ("metric", metric)):
            (package / f"{name}.py").write_text(text)
        for name in [name for name in sys.modules if name.startswith(package.name)]:
            monkeypatch.delitem(sys.modules, name)
        with monkeypatch.context() as path:
            path.syspath_prepend(package.parent)
            for name in ("helper", "metric"):
                module = importlib.import_module(f"{package.name}.{name}")
        found: Callable[..., Any] = module.judged
        return found

    yield loaded
    for name in [name for name in sys.modules if name.startswith("metrics_of_mine")]:
        del sys.modules[name]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x + 1", "x + 2"),
        ("power=2", "power=3"),
        ("np.sum", "np.mean"),
        ('"late": 2.0', '"late": 2.5'),
        ("(1, 2)", "(1, 3)"),
        ("factor = 1", "factor = 2"),
        ("x * self.factor", "x - self.factor"),
        ('weight(COSTS["late"])', 'weight(COSTS["early"][0])'),
    ],
)
def test_whatever_changes_what_is_done_changes_the_digest(load, old, new):
    assert old in METRIC
    assert code_digest(load(METRIC.replace(old, new))) != code_digest(load())


@pytest.mark.parametrize(("old", "new"), [("2 * x", "x * x"), ("SCALE = 3", "SCALE = 4")])
def test_code_that_is_used_of_other_modules_of_the_package_counts(load, old, new):
    assert code_digest(load(helper=HELPER.replace(old, new))) != code_digest(load())


def test_a_module_named_in_full_counts_as_well(load):
    metric = "import metrics_of_mine.helper\n\ndef judged(o, t):\n    return metrics_of_mine.helper.weight(1)\n"
    assert code_digest(load(metric)) == code_digest(load(metric))
    assert code_digest(load(metric)) != code_digest(load(metric, HELPER.replace("2 * x", "x * x")))
    inside = "def judged(o, t):\n    from metrics_of_mine.helper import weight\n    return weight(1)\n"
    assert code_digest(load(inside)) != code_digest(load(inside, HELPER.replace("2 * x", "x * x")))


@pytest.mark.parametrize(
    "metric",
    [
        METRIC.replace("return x * self", "# why\n\n        return x * self"),
        METRIC + "\ndef unused():\n    return 5\n",
        "\n\n\n" + METRIC,
        METRIC.replace("return float(", "return (  float(").replace("inner(0)", "inner(0))"),
    ],
)
def test_neither_comments_nor_layout_nor_what_is_not_used_counts(load, metric):
    assert code_digest(load(metric)) == code_digest(load())


def test_parts_of_a_helper_that_are_not_used_do_not_count(load):
    assert code_digest(load(helper=HELPER + "\ndef other():\n    return 1\n")) == code_digest(load())


def test_arguments_that_are_bound_count():
    def made(value: Any) -> Callable[[], Any]:
        return lambda: value

    assert len({code_digest(made(value)) for value in (1, 1.0, "1", (1,), frozenset({1}), np.ones(2), np.zeros(2))}) == 7
    assert code_digest(made(frozenset({1, "a", 2}))) == code_digest(made(frozenset({2, 1, "a"})))
    assert code_digest(partial(max, 1)) != code_digest(partial(max, 2))


def test_what_a_callable_remembers_between_calls_does_not_count():
    seen: list[int] = []

    def counting() -> int:
        seen.append(1)
        return len(seen)

    before = code_digest(counting)
    counting()
    assert code_digest(counting) == before


def test_code_that_goes_round_in_circles_has_a_digest(load):
    one = "def judged(n):\n    return other(n - 1) if n else 0\n\ndef other(n):\n    return judged(n)\n"
    assert code_digest(load(one)) == code_digest(load(one))
    assert code_digest(load(one)) != code_digest(load(one.replace("return judged(n)", "return judged(n + 1)")))


def test_callables_that_are_no_functions_have_one_too(load):
    text = "class Judge:\n    def __init__(self, k):\n        self.k = k\n    def __call__(self, o, t):\n        return self.k\n"
    digests = {code_digest(load(f"{text}\njudged = Judge({k})\n")) for k in (1, 2)}
    assert len(digests | {code_digest(load(f"{text.replace('return self.k', 'return -self.k')}\njudged = Judge(1)"))}) == 3
    assert code_digest(len) == code_digest(len) != code_digest(max)


def test_a_callable_that_cannot_be_hashed_has_one(load):
    text = "class Judge:\n    __hash__ = None\n    def __call__(self, o, t):\n        return 1\n\njudged = Judge()\n"
    assert code_digest(load(text)) != code_digest(load(text.replace("return 1", "return 2")))
