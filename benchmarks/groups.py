"""Groups of figures: chosen on the command line, measured one after the other, with one table each."""

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


def measured(
    groups: Mapping[str, Callable[[S], Iterator[Figure]]],
    chosen: Iterable[str],
    setting: S,
    write: Callable[[list[Figure]], object] | None = None,
) -> list[Figure]:
    """All figures of these groups; each is printed as soon as it is there, and ``write`` is told all there are so far."""
    found: list[Figure] = []
    for name in chosen:
        start, before = time.perf_counter(), len(found)
        print(f"{name} …", flush=True)
        for figure in groups[name](setting):
            found.append(figure)
            print(f"{figure.id}: {figure.spread}", flush=True)
            if write is not None:
                write(found)
        print_table(found[before:], f"{name} ({time.perf_counter() - start:.0f} s)")
    return found
