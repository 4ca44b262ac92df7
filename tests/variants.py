"""Families of cases: a few that stand for the others in `make test`, all the others in a part of the soak suite."""

from collections.abc import Mapping, Sequence
from typing import Any

import pytest


def represented(argument: str, cases: Mapping[str, Any] | Sequence[str], part: str, *shown: str) -> pytest.MarkDecorator:
    """Parametrize a test by cases, of which all but the ``shown`` are left to a part of the soak suite.

    Args:
        argument: of the test.
        cases: values by name, or names alone.
        part: of the soak suite.
        shown: names of the cases in `make test`.

    Raises:
        KeyError: a shown case is none of the cases.
    """
    values = dict(cases) if isinstance(cases, Mapping) else {name: name for name in cases}
    if missing := set(shown) - set(values):
        raise KeyError(missing)
    marks = {name: () if name in shown else pytest.mark.soak(part) for name in values}
    return pytest.mark.parametrize(argument, [pytest.param(value, id=name, marks=marks[name]) for name, value in values.items()])
