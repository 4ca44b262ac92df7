"""Values between processes: they come back as they were, and nothing but values does."""

import os
import threading
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

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
    ],
)
def test_a_message_calls_no_function_and_makes_no_instance_of_the_library(node: str) -> None:
    with pytest.raises(TypeError):
        decode(forged(node))


@pytest.mark.parametrize("node", ['["unknown", 1]', '{"a": 1}', '["array", "<i8", [1], "7"]', '["name", "os", "no_such"]'])
def test_a_message_that_nobody_writes_is_refused(node: str) -> None:
    with pytest.raises(ValueError, match="a message of a worker"):
        decode(forged(node))


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
