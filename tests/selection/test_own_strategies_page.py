"""Examples of docs/own_strategies.md: blocks are valid, functions are short, obey the laws, and run in pipelines."""

import re
import runpy
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
import yaml
from sqlalchemy.dialects.postgresql import JSONB

from modyn_dagster.data.windows.statements.allowed import StatementOrigin, statement_of
from modyn_dagster.data.windows.statements.choosing import only_read, require_repeatable
from modyn_dagster.data.windows.statements.window_samples import HELD, lend_view, window_samples
from modyn_dagster.selection.own import WindowSamples
from modyn_dagster.selection.own.custom import custom_strategy
from modyn_dagster.selection.own.user_code import selection_code_errors
from modyn_dagster.spec.selection import SelectionSpec

PAGE = (Path(__file__).parents[2] / "docs" / "own_strategies.md").read_text(encoding="utf-8")
MODULES = ("choice", "statements")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The page's package of user code, ``shop``."""
    (tmp_path / "shop").mkdir()
    for name in MODULES:
        [block] = [block for block in blocks("python") if block.startswith(f"# shop/{name}.py")]
        assert len(block.splitlines()) <= 30
        (tmp_path / "shop" / f"{name}.py").write_text(block)
    monkeypatch.syspath_prepend(tmp_path)
    yield tmp_path
    for module in ("shop", *(f"shop.{name}" for name in MODULES)):
        sys.modules.pop(module, None)


def specs() -> dict[str, SelectionSpec]:
    found = [SelectionSpec.model_validate(yaml.safe_load(block)["selection"]) for block in blocks("yaml")]
    return {spec.strategy.kind: spec for spec in found}


def test_every_block_is_valid_and_every_kind_has_one(shop: Path) -> None:
    assert set(specs()) == {"custom", "sql"}
    for spec in specs().values():
        assert list(selection_code_errors(spec, source="pipeline shop")) == []


def test_the_function_passes_the_suite_by_the_line_of_the_page(shop: Path) -> None:
    [check] = [block for block in blocks("python") if "check_strategy(" in block]
    (shop / "block.py").write_text(check)
    runpy.run_path(str(shop / "block.py"))


def test_the_function_keeps_classes_by_a_power_of_their_sizes(shop: Path) -> None:
    labels = np.repeat(np.arange(3), [900, 90, 10])
    samples = WindowSamples(np.arange(1000, dtype=np.uint64), labels, np.zeros(1000, np.int64), 110, 0, 4)
    chosen = custom_strategy("shop.choice:tempered", {"power": 0.5})(samples)
    roots = np.sqrt([900, 90, 10])
    expected = np.minimum([900, 90, 10], (110 * roots / roots.sum()).astype(int))
    assert np.bincount(labels[chosen.keys.astype(int)]).tolist() == expected.tolist()
    assert chosen.chances is not None
    np.testing.assert_allclose(np.sum(1 / chosen.chances), 1000)


def test_the_statement_consists_of_allowed_parts(shop: Path) -> None:
    path: Any = specs()["sql"].strategy
    found = statement_of(StatementOrigin("pipeline shop", "selection.strategy.statement", path.statement), window_samples())
    assert found.has_chances
    assert found.functions == {"row_number", "count", "least", "hashint8extended"}


def test_the_statement_runs_in_postgres_and_keeps_so_many_of_a_group(shop: Path, engine: sa.Engine) -> None:
    path: Any = specs()["sql"].strategy
    origin = StatementOrigin("pipeline shop", "selection.strategy.statement", path.statement)
    found = statement_of(origin, window_samples())
    with engine.connect() as conn:
        require_repeatable(conn, found, origin)
        HELD.create(conn)
        conn.execute(sa.insert(HELD), [{"key": key, "time": "2024-01-01"} for key in range(1200)])
        lend_view(conn, sa.select(HELD, sa.cast(sa.null(), JSONB).label("attributes")))
        only_read(conn, 60)
        rows = conn.execute(found.select).tuples().all()
    # Without attributes all samples are of one shop.
    assert len({key for key, _ in rows}) == len(rows) == 1000
    assert {chance for _, chance in rows} == {1000 / 1200}
