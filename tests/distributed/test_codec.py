"""Values between processes: they come back as they were, and nothing but values does."""

import os
import threading
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, timezone, tzinfo
from enum import Enum
from pathlib import Path, PurePath
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as stn

from modyn_dagster.distributed.codec import decode, encode
from modyn_dagster.distributed.messages import answer_call, pack_call, unpack_answer
from modyn_dagster.distributed.protocols import Rank, Resources
from modyn_dagster.errors import ConfigError, RunError
from modyn_dagster.evaluation.predictions.forward import Predictions
from modyn_dagster.settings import Settings
from modyn_dagster.spec.triggers.drift import FeaturesSpec
from tests.distributed import calls

URL = "postgresql://modyn:geheim@db.example:5432/?sslmode=require"


class SetsMore:
    """A class of others whose state is more than its fields."""

    def __setstate__(self, state: object) -> None:
        raise AssertionError("a message called a method")


@dataclass(frozen=True, slots=True)
class Fields:
    """A class of others with fields alone."""

    number: int


class Of(Enum):
    """An enumeration of others."""

    HERE = 1


class OddZone(tzinfo):
    """A zone that has no name to find it by."""

    def utcoffset(self, moment: datetime | None, /) -> timedelta:
        return timedelta(hours=1)

    def dst(self, moment: datetime | None, /) -> None: ...

    def tzname(self, moment: datetime | None, /) -> None: ...


PLAIN = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary()
    | st.dates()
    | st.datetimes(timezones=st.none() | st.just(UTC)).map(lambda moment: moment.replace(fold=0))
    | st.timedeltas()
    | st.builds(range, st.integers(), st.integers(), st.integers(1, 9))
    | st.builds(Path, st.text(st.characters(categories=["L"])))
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text() | st.integers() | st.tuples(st.integers()), inner)
        | st.frozensets(st.integers(), max_size=1)
    ),
    max_leaves=20,
)


@given(VALUES)
def test_plain_values_come_back_with_their_types(value: Any) -> None:
    again = decode(encode(value))
    assert again == value
    assert repr(again) == repr(value)


@given(stn.arrays(stn.scalar_dtypes() | stn.array_dtypes(), stn.array_shapes(min_dims=0, min_side=0)))
def test_arrays_come_back_bit_for_bit_and_may_be_changed(array: np.ndarray[Any, Any]) -> None:
    again = decode(encode([array]))[0]
    assert (again.dtype, again.shape, again.tobytes()) == (array.dtype, array.shape, array.tobytes())
    assert again.flags.writeable


@pytest.mark.parametrize(
    "value",
    [
        Settings(Path("/a"), Path("/b"), postgres_url=URL),
        Resources(cpus=2),
        Rank(0, 2, "file:///x"),
        FeaturesSpec(of="columns", pca=3),
        (datetime(2024, 1, 1, tzinfo=UTC), date(2024, 1, 1), timedelta(days=-1, microseconds=1)),
        np.float32(0.1),
        np.dtype([("a", "<i4"), ("b", "<f4", (2,))]),
        (PurePath("a/b"), Fields(3), Of.HERE),
        calls.doubled,
        Resources,
    ],
    ids=lambda value: type(value).__name__,
)
def test_instances_come_back_equal(value: Any) -> None:
    again = decode(encode(value))
    assert type(again) is type(value)
    assert again == value


def test_not_a_number_keeps_its_bits() -> None:
    outputs = np.array([[0x7FC00001, 0xFFC00000]], np.uint32).view(np.float32)
    sent = replace(Predictions.empty("class", 2), outputs=outputs, losses=outputs[0])
    assert decode(encode(sent)).outputs.tobytes() == outputs.tobytes()


@pytest.mark.parametrize(
    "value",
    [threading.Lock(), open(os.devnull), lambda: 0, np.array([object()]), (n for n in ""), os.environ],  # noqa: SIM115
    ids=["lock", "file", "lambda", "objects", "generator", "environment"],
)
def test_what_is_no_value_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        encode(value)


def forged(node: str) -> bytes:
    empty = encode(None)
    content = node.encode()
    return len(content).to_bytes(8, "little") + content + empty[8 + len(b"null") :]


@pytest.mark.parametrize(
    "node",
    [
        '["call", "os", "getpid", ["tuple", []], null]',
        '["call", "subprocess", "Popen", ["tuple", [["list", ["true"]]]], null]',
        '["new", "subprocess", "Popen", ["tuple", []], null]',
        '["call", "builtins", "eval", ["tuple", ["1"]], null]',
        '["new", "os", "getpid", ["tuple", []], null]',
        '["call", "modyn_dagster.distributed.messages", "answer_call", ["tuple", [["bytes", "0"]]], null]',
        '["call", "modyn_dagster.distributed.restoring", "imported", ["tuple", ["os", "system"]], null]',
        '["call", "modyn_dagster.distributed.children", "subprocess.run", ["tuple", [["list", ["true"]]]], null]',
        '["call", "modyn_dagster.settings", "Settings.from_environment", ["tuple", []], null]',
        '["call", "modyn_dagster.settings", "Settings", ["tuple", ["/", "/"]], null]',
        '["call", "fastpath.errors", "_restored", ["tuple", [["name", "subprocess", "Popen"], ["tuple", []]]], null]',
        '["call", "enum", "Enum", ["tuple", ["Made", "member"]], null]',
        '["new", "tests.distributed.test_codec", "SetsMore", ["tuple", []], 1]',
        '["new", "enum", "EnumMeta", ["tuple", []], null]',
        '["own", 1]',
    ],
)
def test_a_message_calls_no_function_and_makes_no_instance_of_the_library(node: str) -> None:
    with pytest.raises(ValueError, match="a message of a worker is damaged"):
        decode(forged(node))


def test_a_forged_answer_runs_nothing(tmp_path: Path) -> None:
    place = tmp_path / "ran"
    call = encode(("os", "system", f"touch {place}"))
    answer = encode((call, None))
    node = '["call", "modyn_dagster.distributed.messages", "answer_call", ["tuple", [["bytes", "0"]]], null]'
    length = int.from_bytes(answer[:8], "little")
    content = f'["tuple", [{node}, null]]'.encode()
    with pytest.raises(ValueError, match="a message of a worker is damaged"):
        unpack_answer(len(content).to_bytes(8, "little") + content + answer[8 + length :])
    assert not place.exists()


@pytest.mark.parametrize(
    "value",
    [
        np.ma.masked_equal([1, 2], 1),  # type: ignore[no-untyped-call]  # numpy has no type for it
        np.array([(1,)], [("a", "<i4")]).view(np.recarray),
        *(datetime(2024, 1, 1, tzinfo=OddZone()), SetsMore()),
    ],
    ids=["masked", "records", "zone", "state"],
)
def test_what_would_arrive_as_something_else_is_refused(value: Any) -> None:
    with pytest.raises(TypeError, match="cannot be sent to another process"):
        encode(value)


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
def test_the_order_of_elements_is_kept(shape: tuple[int, ...]) -> None:
    array = np.asfortranarray(np.arange(np.prod(shape)).reshape(shape))
    again = decode(encode(array))
    assert again.tolist() == array.tolist()
    assert (again.shape, again.strides, again.flags.writeable) == (array.shape, array.strides, True)


@pytest.mark.parametrize("zone", [None, UTC, timezone(timedelta(hours=2)), ZoneInfo("Europe/Zurich")], ids=str)
@pytest.mark.parametrize("fold", [0, 1])
def test_a_time_keeps_its_zone_and_its_fold(zone: tzinfo | None, fold: int) -> None:
    moment = datetime(2024, 10, 27, 2, 30, tzinfo=zone, fold=fold)
    again = decode(encode([moment]))[0]
    assert (repr(again), again.utcoffset()) == (repr(moment), moment.utcoffset())


@pytest.mark.parametrize(
    "node",
    [
        *('["unknown", 1]', '{"a": 1}', '["array", "<i8", [1], "7"]', '["name", "os", "no_such"]', "[", "\\", '"\\ud800', ""),
        *('["set", [["list", []]]]', '["dict", [1]]', '["dict", [[["list", []], 1]]]', '["timedelta", [1e300]]', '["date", 1]'),
        *("[" * 100_000, '["list", [' * 900 + "]]" * 900, '["range", 1, 2, 0]', '["datetime", "2024-01-01", "No/Zone", 0]'),
    ],
    ids=range(17),
)
def test_a_message_that_nobody_writes_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="a message of a worker is damaged"):
        decode(forged(node))


@pytest.mark.parametrize("shape", ["[1099511627776]", "[2]", "[-1, -3]", "[3.0]", '["3"]', "[0]"])
def test_an_array_of_another_size_than_its_bytes_is_refused(shape: str) -> None:
    content = encode(np.arange(3))
    length = int.from_bytes(content[:8], "little")
    tree = f'["array", "<i8", {shape}, "0"]'.encode()
    with pytest.raises(ValueError, match="a message of a worker is damaged"):
        decode(len(tree).to_bytes(8, "little") + tree + content[8 + length :])


@given(cut=st.integers(0, 10_000))
def test_a_message_cut_short_is_refused(cut: int) -> None:
    content = encode({"keys": np.arange(100), "settings": Resources()})
    with pytest.raises(ValueError):
        decode(content[: cut % len(content)])


def test_passwords_do_not_travel_to_other_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = Settings(Path("/a"), Path("/b"), postgres_url=URL, postgres_owner_url=URL)
    call = pack_call(settings_in_worker, {"settings": [settings]}, secrets=False)
    assert b"geheim" not in call
    monkeypatch.setenv("MODYN_POSTGRES_URL", URL)
    assert unpack_answer(answer_call(call)) == ("geheim" in URL, True)
    for own in (URL.replace("db.example", "elsewhere"), ""):
        monkeypatch.setenv("MODYN_POSTGRES_URL", own)
        with pytest.raises(ConfigError, match="passwords are not sent") as refused:
            unpack_answer(answer_call(call))
        assert "geheim" not in str(refused.value)


def settings_in_worker(item: dict[str, list[Settings]]) -> tuple[bool, bool]:
    [settings] = item["settings"]
    return "geheim" in str(settings.postgres_url), settings.postgres_owner_url is None


def test_an_error_whose_class_cannot_be_found_keeps_its_words() -> None:
    def fails_here(_: None) -> None:
        class Hidden(Exception):
            pass

        raise Hidden("somewhere")

    with pytest.raises(ConfigError):
        pack_call(fails_here, None)
    with pytest.raises(RunError, match="Hidden: somewhere"):
        unpack_answer(answer_call(pack_call(hidden, None)))


def hidden(_: None) -> None:
    class Hidden(Exception):
        pass

    raise Hidden("somewhere")
