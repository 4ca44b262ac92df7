"""Each change of a store in each kind of place, killed before each of its writes: what is there is whole, a second start ends as
an undisturbed one, and ``gc`` removes the rest.

``test_orders.py`` has savers and removers that meet; killed, too.
"""

import uuid
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from modyn_dagster.errors import ModelInUse, UnknownModel
from modyn_dagster.model_store import ModelStore
from tests.model_store.killing import BASE, CHANGES, IDS, RECIPE, STATES, Content, Place, killed_in_memory, process_to_kill
from tests.model_store.states import assert_exact

pytestmark = pytest.mark.usefixtures("nobody_waits")

#: The changes that `make test` has of each kind of place; the others are left to the soak suite. Memory has temporary names and
#: torn files, or shows objects when they are whole, as S3 does.
IN_TEST = {
    "memory": {"a save as a plain snapshot", "a save as a delta", "a deletion that rebases one"},
    "memory of whole objects": set(CHANGES) - {"a deletion that rebases two"},
    "a folder": {"a save as a delta"},
    "S3": set(),
}
#: A child takes seconds to connect, and does what it does with objects in memory.
ON_S3 = {"a save as a delta", "a save that mends", "a deletion that rebases one"}
MATRIX = [
    pytest.param(
        change,
        place,
        id=f"{change} in {place}",
        marks=[*[pytest.mark.process] * (place == "a folder"), *[pytest.mark.soak("kills-store")] * (change not in in_test)],
    )
    for place, in_test in IN_TEST.items()
    for change in CHANGES
    if place != "S3" or change in ON_S3
]
Kill = Callable[[Place, str, int], bool]


@pytest.fixture(scope="module")
def kill() -> Iterator[Kill]:
    with process_to_kill() as is_killed:
        yield is_killed


@pytest.fixture
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    kind = request.param
    if kind == "S3":
        s3 = request.getfixturevalue("s3")
        # The stores of this process share their connections.
        found = Place(s3.fresh_url(), s3.options | {"skip_instance_cache": False}, request.getfixturevalue("kill"))
    elif kind == "a folder":
        found = Place(f"file://{tmp_path}/models", {}, request.getfixturevalue("kill"))
    else:
        in_memory = partial(killed_in_memory, is_atomic=kind == "memory of whole objects")
        found = Place(f"memory://models/{uuid.uuid4().hex}", {}, in_memory)
    yield found
    found.fill({})


def sound(store: ModelStore) -> dict[str, tuple[str, str | None, tuple[str, ...]]]:
    """Strategy, base and needs of the sound models, after a look that they are the saved ones bit for bit."""
    damaged = {Path(error.path).stem for error in store.verify()}
    found = {model: store.info(model) for model in store.list() if model not in damaged}
    for model, info in found.items():
        if info.strategy != "provenance":
            assert_exact(store.load(model), STATES[IDS.index(model)])
    return {model: (info.strategy, info.base, info.needs) for model, info in found.items()}


def end(place: Place) -> tuple[dict[str, Any], list[str], list[bytes]]:
    """Models, names of their files and documents, and hints, as ``gc`` leaves them."""
    place.store().gc(older_than=0)
    content = place.content()
    hints = sorted(data for name, data in content.items() if name.startswith("tensors"))
    return sound(place.store()), sorted(name for name in content if not name.startswith("tensors")), hints


def prepared(change: str, place: Place) -> Content:
    for state, strategy, base in zip(STATES, CHANGES[change].before, [None, BASE, BASE], strict=False):
        saver = place.store()
        saver.save(state, base=base, strategy=strategy, provenance=RECIPE)
    return CHANGES[change].spoil(place.content())


def require_removable(place: Place, left: Content) -> None:
    """The base can be removed: at once, or where a saver announced that it needs it, after ``gc``."""
    place.fill(left)
    store = place.store()
    there = store.list()
    is_announced = any(name.startswith("coming/") and BASE.encode() in data for name, data in left.items())
    try:
        store.delete(BASE, rebase=True)
    except ModelInUse:
        assert is_announced
        store.gc(older_than=0)
        store.delete(BASE, rebase=True)
    else:
        assert not is_announced
    store.gc(older_than=0)
    assert sorted(sound(store)) == store.list() == [model for model in there if model != BASE]
    assert {Path(name).stem for name in place.content() if name[2] == "/"} == set(store.list())


@pytest.mark.parametrize(("change", "place"), MATRIX, indirect=["place"])
def test_killed_before_any_write_and_started_again_it_ends_the_same(change: str, place: Place) -> None:
    before = prepared(change, place)
    comparable = (lambda found: found) if CHANGES[change].keeps_bases else (lambda found: (set(found[0]), *found[1:]))
    place.fill(before)
    there = sound(place.store())
    CHANGES[change].do(place.store())
    expected = end(place)
    for n in count(1):
        place.fill(before)
        if not place.is_killed(place, change, n):
            break
        left, found = place.content(), sound(place.store())
        # All or nothing: a model is sound, or nobody sees it; and none that stays was lost.
        assert set(there) & set(expected[0]) <= set(found) <= set(there) | set(expected[0])
        try:
            CHANGES[change].do(place.store())
        except UnknownModel:
            assert change.startswith("a deletion")
        assert comparable(end(place)) == comparable(expected), f"killed before write {n}"
        if BASE in found and all(strategy != "provenance" for strategy, _, _ in found.values()):
            require_removable(place, left)
    assert n > 2
