"""Suites: `make check` (fast), `make test` (everything a change must pass) and the parts of `make soak`.

A test belongs to the fast suite unless it is marked ``process`` or ``long``. Tests that use a server get the mark ``process`` by
their fixtures, those of some folders by their place. Soak tests are marked ``soak("<part>")``. The parts of ``LAWS`` run the
laws of their folders once more, with many times as many examples: hypothesis tests, and simulations marked ``law``.
"""

import os
import secrets
import sys
import zlib
from collections.abc import Iterator
from typing import Final

import pytest
from hypothesis import is_hypothesis_test, settings

# How long an example takes says nothing on a busy machine. Tests with a number of their own ask `examples` for it.
# A third of the examples that hypothesis itself would take.
settings.register_profile("usual", deadline=None, max_examples=30)
# For the inner loop.
settings.register_profile("quick", deadline=None, max_examples=20)
# For runs in which every example takes several times as long, such as those under sanitizers.
settings.register_profile("few", deadline=None, max_examples=15)
# For nights and releases.
settings.register_profile("deep", deadline=None, max_examples=400)

#: Fixtures that start a server or a process.
STARTING: Final = frozenset({"postgres_server", "own_server", "new_server", "running_server", "forks", "s3", "browser"})
#: Folders whose tests all start processes, by their paths from the root.
STARTING_FOLDERS: Final = ("tests/integration", "tests/dagster")

#: Tests of `make gpu` alone, which collects them without this plugin.
GPU_FOLDER: Final = "tests/gpu"

#: Parts of ``make soak`` with tests of their own, and what they do.
MARKED: Final = {
    "benchmarks": "the programs that measure, run to their end",
    "golden": "every policy, strategy and store against the recorded hashes",
    "kills-daemons": "daemons, measuring runs and Postgres killed under production and under a replay",
    "kills-replay": "a replay killed before and after every commit and rename",
    "kills-ingestion": "an import, a deletion and a deletion request killed at every step",
    "kills-store": "every change of a model store, and removals of pipelines and datasets, killed at every write",
    "faults": "random histories of faults, kills and restarts, and power cuts",
    "hangs": "user code that hangs at every hook, and an MLflow that is away",
    "deletions": "runs decided as if samples had never arrived, under every policy and strategy",
    "labels": "labels that come late and change, under every policy and strategy",
    "scale": "five thousand batches and sixty pipelines through a daemon with the shipped settings",
    "production": "production that somebody operates, and warm processes and user interfaces that are killed",
    "replays": "live runs and replays under every policy, sampler, strategy and fault, and what is stored of them",
    "screens": "assets, pages, commands and reports, as people meet them in Dagster, MLflow, a browser and a terminal",
    "distributed": "pools, ranks, shards of samplers and node caches, with workers that die",
    "ray": "replays, trainings and evaluations on two nodes of Ray, one of which goes away or is cut off",
    "packages": "wheel and source distribution, and every extra, installed into environments of their own",
    "fuzz": "tens of thousands of damaged files",
}
#: Parts with the laws of some folders under the profile ``deep``, and with what is marked for them.
LAWS: Final = {
    "laws-data": (
        "tests/data",
        "tests/files",
        "tests/ingestion",
        "tests/catalog_ingestion",
        "tests/catalog",
        "tests/errors",
        "tests/spec",
        "tests/values",
        "tests/project",
    ),
    "laws-fastpath": ("tests/fastpath",),
    "laws-models": ("tests/model_store", "tests/benchmarks", "tests/serving"),
    "laws-policies": ("tests/selection", "tests/triggering"),
    "laws-results": ("tests/evaluation", "tests/reporting", "tests/pipeline", "tests/dagster", "tests/cli"),
    "laws-training": ("tests/training", "tests/distributed"),
}
#: Parts that take longer than a quarter of an hour, and the number of their pieces: ``labels-1``, ``labels-2`` and so on.
DIVIDED: Final = {"deletions": 3, "distributed": 4, "labels": 6}
#: What is run at a time: parts, or their pieces.
PARTS: Final = tuple(
    sorted(
        [
            *(part for part in (*MARKED, *LAWS) if part not in DIVIDED),
            *(f"{part}-{piece}" for part, pieces in DIVIDED.items() for piece in range(1, pieces + 1)),
        ]
    )
)

#: Events of Python's audit that say that a process starts.
_STARTS: Final = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options that select a suite; without them all tests but those of the soak suite run."""
    group = parser.getgroup("suites")
    group.addoption("--fast", action="store_true", help="only tests that start no process and train briefly: make check")
    group.addoption("--soak", metavar="PART", help="only a part of the soak suite, or all of it: make soak")


def pytest_configure(config: pytest.Config) -> None:
    """Select the suite, and how many examples its laws get."""
    # Before modules are collected: Ray reads them when one of these imports it, and `tests.cluster` has its clusters use them.
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(16))
    suites = Suites(fast=config.getoption("fast"), soak=config.getoption("soak"))
    config.pluginmanager.register(suites, "suites")
    # Before tests are imported: some derive a number of their own from it.
    settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", suites.profile))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> object:
    """For ``--dist loadgroup``: who is given which tests, and in which order."""
    if config.getvalue("dist") != "loadgroup":
        return None
    from tests.lanes import Lanes

    return Lanes(config, log)


def part_of_commit(commit: str) -> str:
    """The part of ``make soak`` that runs with a commit, given by its hash."""
    return PARTS[int(commit, 16) % len(PARTS)]


class Suites:
    """The pytest plugin that selects the tests of one suite."""

    def __init__(self, *, fast: bool, soak: str | None) -> None:
        if soak not in (None, "all", *PARTS, *DIVIDED):
            raise pytest.UsageError(f"--soak {soak}: no such part of the soak suite; there are {', '.join(PARTS)}, and all")
        if fast and soak:
            raise pytest.UsageError("--fast and --soak exclude each other")
        self.fast, self.soak = fast, soak
        self._started: list[str] = []
        if fast:
            sys.addaudithook(self._note_start)

    @property
    def profile(self) -> str:
        """Hypothesis profile, unless the environment names one."""
        return "deep" if self.soak else "quick" if self.fast else "usual"

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Mark tests by what they use, and deselect those of other suites."""
        for item in items:
            if _starts(item):
                item.add_marker(pytest.mark.process)
        chosen = [self._is_chosen(item) for item in items]
        if not all(chosen):
            config.hook.pytest_deselected(items=[item for item, is_chosen in zip(items, chosen) if not is_chosen])
            items[:] = [item for item, is_chosen in zip(items, chosen) if is_chosen]

    def pytest_ignore_collect(self, collection_path: os.PathLike[str], config: pytest.Config) -> bool | None:
        """Spare the fast suite the imports of folders of which it has no test, and every suite the tests of `make gpu`."""
        path = os.path.relpath(collection_path, config.rootpath)
        return True if path == GPU_FOLDER or (self.fast and path in STARTING_FOLDERS) else None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self) -> None:
        """Forget the processes of the test before."""
        self._started.clear()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        """Fail tests of the fast suite that start a process."""
        yield
        if self._started:
            pytest.fail(f"starts a process ({self._started[0]}): mark it with pytest.mark.process", pytrace=False)

    def _is_chosen(self, item: pytest.Item) -> bool:
        part = part_of(item)
        if self.soak is None:
            return part is None and not (self.fast and (_is_marked(item, "process") or _is_marked(item, "long")))
        if self.soak == "all":
            return part is not None or _is_law(item)
        name, _, piece = self.soak.rpartition("-")
        if name in DIVIDED:
            return part == name and piece_of(item.nodeid, DIVIDED[name]) == int(piece)
        folders = LAWS.get(self.soak, ())
        return part == self.soak or (part is None and _is_law(item) and _is_below(item, folders))

    def _note_start(self, event: str, arguments: tuple[object, ...]) -> None:
        if event in _STARTS:
            self._started.append(" ".join([event, *map(str, arguments[:1])]))


def part_of(item: pytest.Item) -> str | None:
    """The part of the soak suite that a test is marked with. ``UsageError`` where there is no such part."""
    mark = item.get_closest_marker("soak")
    if mark is None:
        return None
    if len(mark.args) != 1 or mark.args[0] not in (*MARKED, *LAWS):
        names = ", ".join(sorted([*MARKED, *LAWS]))
        raise pytest.UsageError(f"{item.nodeid}: expected soak(<part>) with one of {names}, found soak{mark.args}")
    return str(mark.args[0])


def piece_of(test: str, pieces: int) -> int:
    """The piece of a divided part that a test belongs to, by its name alone, from 1 on.

    >>> sorted({piece_of(f"tests/test_some.py::test_one[{number}]", 3) for number in range(20)})
    [1, 2, 3]
    """
    return zlib.crc32(test.encode()) % pieces + 1


def _starts(item: pytest.Item) -> bool:
    return not STARTING.isdisjoint(getattr(item, "fixturenames", ())) or _is_below(item, STARTING_FOLDERS)


def _is_marked(item: pytest.Item, name: str) -> bool:
    return item.get_closest_marker(name) is not None


def _is_law(item: pytest.Item) -> bool:
    return _is_marked(item, "law") or (isinstance(item, pytest.Function) and is_hypothesis_test(item.obj))


def _is_below(item: pytest.Item, folders: tuple[str, ...]) -> bool:
    return any(item.nodeid.startswith(f"{folder}/") for folder in folders)
