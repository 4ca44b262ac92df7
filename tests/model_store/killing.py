"""Changes of a store, the places where stores lie, and processes that are killed before one of their writes there.

As a program it forks a child per line of standard input, which makes a change, and prints the child's exit status.
"""

import json
import os
import signal
import subprocess
import sys
import traceback
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import fsspec
from fsspec.implementations.memory import MemoryFileSystem

from modyn_dagster.durability.incremental_fsync import IncrementalFsyncFile
from modyn_dagster.model_store import Adaptive, ChangedLayers, Delta, ModelStore, Prices, Provenance, Snapshot
from modyn_dagster.model_store.strategies.settings import Retrain, Strategy
from tests.disk import do_not_wait_for_the_disk
from tests.model_store.interleaving import Killed
from tests.model_store.lineages import moved, network
from tests.model_store.states import flipped_bit

#: Contents of files by their paths below the root of a store.
Content = Mapping[str, bytes]

STATES: Final = [network(), moved(network(), 1), moved(network(), 2)]
BASE, CHILD, OTHER = IDS = [ModelStore(f"memory://ids/{uuid.uuid4().hex}").save(state) for state in STATES]
PLAIN: Final = f"{BASE[:2]}/{BASE}.safetensors"
RECIPE: Final = Provenance(train="tests.model_store.trainings:train")
#: Bytes alone decide, so that the choice is the same every time.
BY_BYTES: Final = Adaptive(Prices(store=1e9, save=0, recover=0))
#: Files of nobody, as killed savers and removers leave them.
LEFT: Final = {f"{folder}/{name}": b"half" for folder, name in (("00", ".x.pack.12345678.tmp"), ("documents/00", "0" * 64))}


@dataclass(frozen=True)
class Change:
    """A change of a store, the strategies of the models before it, each based on the first, and damage done to their files.

    ``keeps_bases`` is False where a second start may store models in another way than an undisturbed one.
    """

    do: Callable[[ModelStore], object]
    before: tuple[Strategy, ...] = (Snapshot(),)
    spoil: Callable[[Content], Content] = dict
    keeps_bases: bool = True


def saving(strategy: Strategy, n: int = 1, **given: Any) -> Callable[[ModelStore], object]:
    return lambda store: store.save(STATES[n], base=BASE if n else None, strategy=strategy, provenance=RECIPE, **given)


CHANGES: Final = {
    "the first save": Change(saving(Snapshot(), n=0), ()),
    "a save as a plain snapshot": Change(saving(Snapshot(compress=False))),
    "a save as a packed snapshot": Change(saving(Snapshot(compress=True))),
    "a save as changed layers": Change(saving(ChangedLayers())),
    "a save as a delta": Change(saving(Delta())),
    "a save as a recipe": Change(saving(Retrain())),
    "a save by the least bytes": Change(saving(BY_BYTES)),
    "a save of weights that were left out": Change(saving(Snapshot()), (Snapshot(), Retrain())),
    "a save that mends": Change(
        saving(Snapshot(compress=True), n=0),
        (Snapshot(compress=False), Delta()),
        lambda content: {**content, PLAIN: flipped_bit(content[PLAIN], 8 * len(content[PLAIN]) - 1)},
    ),
    "a deletion": Change(lambda store: store.delete(CHILD), (Snapshot(), Delta())),
    "a deletion that rebases one": Change(lambda store: store.delete(BASE, rebase=True), (Snapshot(), Delta())),
    # Killed between the two, the second becomes no difference to the first: nobody knows any more that they had one base.
    "a deletion that rebases two": Change(
        lambda store: store.delete(BASE, rebase=True), (Snapshot(), Delta(), Delta()), keeps_bases=False
    ),
    "a deletion of all at once": Change(lambda store: store.delete_unneeded([BASE, CHILD]), (Snapshot(), Delta())),
    "gc": Change(lambda store: store.gc(older_than=0), (Snapshot(), Delta()), lambda content: {**content, **LEFT}),
}


class MortalMemory(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """Files in memory. From its fatal change on, which it may do by half, nothing changes any more."""

    cachable = False
    step: Callable[[], None]
    tears = True

    def put_file(self, lpath: str, rpath: str, **kwargs: Any) -> None:
        content = Path(lpath).read_bytes()
        try:
            self.step()
        except Killed:
            if self.tears:
                self.pipe_file(rpath, content[: len(content) // 2])
                self.tears = False
            raise
        self.pipe_file(rpath, content)

    def mv(self, *args: Any, **kwargs: Any) -> None:
        # A copy and a removal, which is one more step.
        self.step()
        super().mv(*args, **kwargs)

    def rm_file(self, path: str) -> None:
        self.step()
        super().rm_file(path)


@dataclass(frozen=True)
class Place:
    """URL of a store with the options of fsspec, and a function that kills whoever makes a change there before the n-th write."""

    root: str
    options: Mapping[str, Any]
    #: False for a change that came to its end before.
    is_killed: Callable[["Place", str, int], bool]

    def store(self) -> ModelStore:
        return ModelStore(self.root, storage_options=self.options)

    def content(self) -> Content:
        files, base = fsspec.core.url_to_fs(self.root, **self.options)
        return {name.removeprefix(f"{base}/"): files.cat_file(name) for name in files.find(base)}

    def fill(self, content: Content) -> None:
        """Put these files there, and no others."""
        files, base = fsspec.core.url_to_fs(self.root, **self.options)
        if files.find(base):
            files.rm(base, recursive=True)
        for name, data in content.items():
            files.makedirs(f"{base}/{name}".rpartition("/")[0], exist_ok=True)
            files.pipe_file(f"{base}/{name}", data)


def killed_in_memory(place: Place, change: str, fatal: int, is_atomic: bool) -> bool:
    """As a process that keeps no promise: nothing that it would do afterwards is done."""
    store, files, steps = place.store(), MortalMemory(), iter(range(1, fatal))

    def step() -> None:
        if next(steps, None) is None:
            raise Killed

    files.step, files.tears = step, not is_atomic
    folder: Any = store.repository.folder
    folder.filesystem, folder.is_atomic = files, is_atomic
    try:
        CHANGES[change].do(store)
    except Killed:
        return True
    return False


@contextmanager
def process_to_kill() -> Iterator[Callable[[Place, str, int], bool]]:
    """A process with everything imported, whose children are killed."""
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-m", __name__], stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None and process.stdout is not None
        commands, answers = process.stdin, process.stdout

        def is_killed(place: Place, change: str, fatal: int) -> bool:
            commands.write(json.dumps([change, place.root, place.options, fatal]) + "\n")
            commands.flush()
            status = int(answers.readline())
            assert status in (0, -signal.SIGKILL), status
            return status != 0

        yield is_killed
        commands.close()


def count_writes(store: ModelStore, step: Callable[[], None]) -> None:
    """Take a step before everything that this process does to the files of a store."""

    def first(owner: Any, name: str) -> None:
        real = getattr(owner, name)

        def run(*args: Any, **kwargs: Any) -> Any:
            step()
            return real(*args, **kwargs)

        setattr(owner, name, run)

    def watch(event: str, arguments: tuple[Any, ...]) -> None:
        # The file of hints is locked between its opening and its only write.
        is_write = event == "open" and arguments[2] & (os.O_WRONLY | os.O_RDWR)
        if is_write or event in ("os.rename", "os.remove", "os.mkdir", "fcntl.flock"):
            step()

    if isinstance(store.root, Path):
        sys.addaudithook(watch)
        first(os, "fsync")
        first(IncrementalFsyncFile, "write")
    else:
        folder: Any = store.repository.folder
        first(folder.filesystem, "put_file")
        first(folder.filesystem, "rm_file")


def _child(change: str, root: str, options: Mapping[str, Any], fatal: int) -> None:
    steps = iter(range(1, fatal))
    store = ModelStore(root, threads=1, storage_options=options)
    count_writes(store, lambda: None if next(steps, None) else os.kill(os.getpid(), signal.SIGKILL))
    CHANGES[change].do(store)


if __name__ == "__main__":
    do_not_wait_for_the_disk()
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            try:
                _child(*json.loads(line))
            except BaseException:  # noqa: BLE001 - for the log of the test
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        sys.stdout.write(f"{os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}\n")
        sys.stdout.flush()
