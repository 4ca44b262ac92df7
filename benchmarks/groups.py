"""Groups of figures: chosen on the command line, measured one after the other, each with a table of its own."""

import argparse
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import TypeVar

from benchmarks.report import Figure, print_table

S = TypeVar("S")


def one_of(groups: Iterable[str]) -> Callable[[str], tuple[str, ...]]:
    """The type of an option that takes names of groups, separated by commas."""
    known = tuple(groups)

    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := [name for name in names if name not in known]:
            raise argparse.ArgumentTypeError(f"no group {', '.join(unknown)}; there are {', '.join(known)}")
        return names

    return parse


def measured(groups: Mapping[str, Callable[[S], Iterator[Figure]]], chosen: Iterable[str], setting: S) -> list[Figure]:
    """All figures of these groups; each is printed as soon as it is there."""
    found: list[Figure] = []
    for name in chosen:
        start, figures = time.perf_counter(), []
        for figure in groups[name](setting):
            figures.append(figure)
            print(f"{figure.id}: {figure.spread}", flush=True)
        print_table(figures, f"{name} ({time.perf_counter() - start:.0f} s)")
        found += figures
    return found
