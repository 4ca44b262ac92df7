"""Imports without garbage collection."""

import gc
from collections.abc import Iterator

import pytest

from modyn_dagster.imports import collector_at_rest, loading


@pytest.fixture(autouse=True)
def usual_collector() -> Iterator[None]:
    """Give this process its own collector back."""
    yield
    gc.unfreeze()
    gc.enable()


def test_nothing_is_collected_while_modules_load_and_what_they_made_stays_out_of_later_collections() -> None:
    before = gc.get_freeze_count()
    with loading():
        assert not gc.isenabled()
        made = [[number] for number in range(5_000)]
    assert gc.isenabled()
    assert gc.get_freeze_count() >= before + len(made)


def test_the_collector_works_again_after_a_module_that_cannot_be_loaded() -> None:
    with pytest.raises(ImportError), loading():
        raise ImportError("no such module")
    assert gc.isenabled()


def test_a_collector_that_was_off_stays_off() -> None:
    gc.disable()
    with collector_at_rest():
        assert not gc.isenabled()
    assert not gc.isenabled()
