"""Facts about a node: versions, processor, threads, shared files, clock, Postgres and GPUs, gathered in a process there."""

import os
import platform
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, Final, Self

from modyn_dagster.catalog.database.engine import open_engine, require_current_schema, transaction
from modyn_dagster.errors import ModynError, StorageError, one_line, without_secrets
from modyn_dagster.files.mounting import files_at, home_of_files
from modyn_dagster.settings import Settings
from modyn_dagster.storage import atomic_write

#: Folder for the files that nodes exchange, below ``MODYN_HOME`` or ``MODYN_FILES``.
FOLDER: Final = "cluster_check"
#: Packages that decide bits, or that must be the same to talk to each other.
PACKAGES: Final = ("modyn-dagster", "torch", "numpy", "dagster", "ray")
_LIBRARIES: Final = {"openmp": "OpenMP", "blas": "BLAS"}
_FINE: Final = "ok"
_SHARED: Final = "MODYN_HOME must be one folder that all nodes share, or MODYN_FILES one store"
#: Clocks that differ by more confuse the order of events in logs.
_MOST_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """Facts about one node.

    Attributes:
        host: its name.
        python: version of the interpreter.
        packages: versions by name; ``none`` for a package that is not installed.
        processor: model name.
        capability: instructions that torch uses.
        cores: number of cores.
        threads: number of threads of a worker there with one core, by library; see ``worker_threads``.
        gpus: names of the GPUs.
        files: ``ok``, or why the file of the asking process cannot be read, or none be written for it.
        wrote: content that this node wrote for the asking process.
        postgres: ``ok``, or why the catalog does not answer.
    """

    host: str
    python: str
    packages: dict[str, str]
    processor: str
    capability: str
    cores: int
    threads: dict[str, int]
    gpus: tuple[str, ...]
    files: str
    wrote: str
    postgres: str

    def to_json(self) -> dict[str, Any]:
        """All fields by name."""
        return asdict(self)

    @classmethod
    def parse(cls, content: dict[str, Any]) -> Self:
        """Inverse of ``to_json``."""
        return cls(**{field.name: content[field.name] for field in fields(cls)})

    def problems(self, here: "NodeFacts", offset: float, wrote: str | None) -> list[str]:
        """List what keeps this node from doing the work of another one, each with what to do.

        Args:
            here: facts of the asking process.
            offset: seconds by which the clock of the node surely goes wrong; negative for one that is slow.
            wrote: content of the node's file as it was read here; None where there was none.
        """
        found = [
            f"{name} {mine} differs from {there} here: install the same constraints.txt on all nodes"
            for name, mine, there in [
                ("Python", self.python, here.python),
                *((name, self.packages.get(name, "none"), here.packages[name]) for name in here.packages),
            ]
            if mine != there
        ]
        for name, mine, there in [
            ("processor", self.processor, here.processor),
            ("instruction set", self.capability, here.capability),
        ]:
            if mine != there:
                found.append(f"{name} {mine!r} differs from {there!r} here: results may differ in bits; use nodes of one type")
        for library, number in here.threads.items():
            if self.threads.get(library) != number:
                found.append(
                    f"threads of {library}: a worker has {self.threads.get(library)}, and {number} here: results may differ in "
                    "bits; set OPENBLAS_NUM_THREADS where runs are started and at `ray start` to at most the cores of the "
                    "smallest node"
                )
        if self.files != _FINE:
            found.append(f"files: {self.files}; {_SHARED}")
        elif wrote != self.wrote:
            found.append(f"files: what it wrote was not found here; {_SHARED}")
        if self.postgres != _FINE:
            found.append(
                f"Postgres: {self.postgres}; set MODYN_POSTGRES_URL where `ray start` runs to a server that all nodes reach"
            )
        if abs(offset) > _MOST_SECONDS:
            found.append(f"clock: {offset:+.1f} s against this one; run NTP on all nodes")
        return found


def node_facts(token: str, name: str) -> dict[str, Any]:
    """Gather the facts about the node of this process, as JSON values.

    Args:
        token: name of the file that the asking process wrote.
        name: name of the file to write for it.
    """
    import torch

    from modyn_dagster.reproducibility.environment import Environment

    settings, environment = Settings.from_environment(), Environment.now()
    wrote = os.urandom(8).hex()
    gpus = tuple(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    facts = NodeFacts(
        host=socket.gethostname(),
        python=platform.python_version(),
        packages={package: _version(package) for package in PACKAGES},
        processor=environment.processor,
        capability=environment.cpu_capability,
        cores=len(os.sched_getaffinity(0)),
        threads=worker_threads(),
        gpus=gpus,
        files=_exchange(exchange_folder(settings), token, name, wrote),
        wrote=wrote,
        postgres=_postgres(settings),
    )
    return facts.to_json()


def worker_threads(_: None = None) -> dict[str, int]:
    """Number of threads of torch, OpenMP and NumPy's BLAS in this process: that of a worker, whose environment says it.

    BLAS takes no more than the node has cores, whatever it is told.
    """
    import numpy as np
    import torch
    from threadpoolctl import threadpool_info

    # NumPy's library has to be loaded, and used once, to be there.
    np.ones((2, 2)) @ np.ones((2, 2))
    # In this order on every node: libraries come in that in which they were loaded.
    found = {"torch": torch.get_num_threads()}
    for pool in sorted(threadpool_info(), key=lambda pool: pool["user_api"], reverse=True):
        name = _LIBRARIES.get(pool["user_api"], pool["user_api"])
        found[name] = max(found.get(name, 0), pool["num_threads"])
    return found


def node_clock(_: None = None) -> float:
    """Seconds since 1970 on the node of this process."""
    return time.time()


def exchange_folder(settings: Settings) -> Path:
    """Folder of the files that nodes exchange: where files of state are, in the home or in the store."""
    return home_of_files(settings.home, settings.files, settings.cache_size) / FOLDER


def exchanged(path: Path) -> str | None:
    """Content of a file that another node may have written; None for a missing one. Raises ``OSError`` and ``StorageError``."""
    files = files_at(path)
    if not files.renewed(path):
        return None
    with files.using(path) as place:
        return place.read_text()


def _exchange(folder: Path, token: str, name: str, wrote: str) -> str:
    try:
        if (found := exchanged(folder / token)) != token:
            return f"{folder / token} {'is not' if found is None else 'has another content'} there"
        with atomic_write(folder / name) as out:
            out.write(wrote.encode())
    except OSError as error:
        return f"{error.filename}: {error.strerror}"
    except StorageError as error:
        return one_line(error)
    return _FINE


def _postgres(settings: Settings) -> str:
    engine = None
    try:
        engine = open_engine(settings)
        require_current_schema(engine)
        with transaction(engine) as connection:
            connection.exec_driver_sql("select 1")
    except ModynError as error:
        return without_secrets(one_line(error))
    finally:
        if engine is not None:
            with suppress(Exception):
                engine.dispose()
    return _FINE


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "none"
