import json
import struct
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fastpath import encode_rows

INT64 = st.integers(-(2**63), 2**63 - 1)


def encode_twin(
    keys: list[int], times: list[int], labels: list[int] | None, targets: list[float] | None, attributes: list[str] | None
) -> bytes:
    """Postgres' documentation, word by word."""
    rows = b""
    for i, (key, time) in enumerate(zip(keys, times)):
        since_2000 = time - 946_684_800_000_000
        fields = [struct.pack("!q", key), struct.pack("!q", since_2000)]
        if labels is not None:
            fields.append(struct.pack("!q", labels[i]))
        if targets is not None:
            fields.append(struct.pack("!d", targets[i]))
        if attributes is not None:
            fields.append(b"\x01" + attributes[i].encode())
        rows += struct.pack("!h", len(fields)) + b"".join(struct.pack("!i", len(field)) + field for field in fields)
    return rows


@given(
    st.lists(
        st.tuples(
            st.integers(0, 2**63 - 1), st.integers(-(2**61), 2**61), INT64, st.floats(allow_nan=False), st.text(max_size=9)
        ),
        max_size=20,
    ),
    st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_rows_are_what_the_documentation_of_postgres_says(
    rows: list[tuple[int, int, int, float, str]], present: tuple[bool, bool, bool]
) -> None:
    keys, times, labels, targets, texts = (list(column) for column in zip(*rows)) if rows else ([], [], [], [], [])
    objects = [json.dumps(text) for text in texts]
    encoded = [text.encode() for text in objects]
    offsets = np.concatenate(([0], np.cumsum([len(text) for text in encoded]))).astype(np.int64)
    with_labels, with_targets, with_attributes = present
    found = encode_rows(
        np.array(keys, dtype=np.uint64),
        np.array(times, dtype="datetime64[us]"),
        np.array(labels, dtype=np.int64) if with_labels else None,
        np.array(targets, dtype=np.float64) if with_targets else None,
        (offsets, np.frombuffer(b"".join(encoded), dtype=np.uint8)) if with_attributes else None,
    )
    expected = encode_twin(
        keys, times, labels if with_labels else None, targets if with_targets else None, objects if with_attributes else None
    )
    assert found.tobytes() == expected


def test_a_span_of_rows_takes_a_span_of_attributes() -> None:
    text = np.frombuffer(b"{}[1][22]", dtype=np.uint8)
    keys, times = np.arange(2, dtype=np.uint64), np.zeros(2, dtype="datetime64[us]")
    found = encode_rows(keys, times, attributes=(np.array([2, 5, 9]), text))
    assert found.tobytes() == encode_twin([0, 1], [0, 0], None, None, ["[1]", "[22]"])


@pytest.mark.parametrize("offsets", [[0, 1], [0, 2, 1], [-1, 0, 1], [0, 1, 4]], ids=str)
def test_attributes_outside_their_text_are_refused(offsets: list[int]) -> None:
    keys, times = np.arange(2, dtype=np.uint64), np.zeros(2, dtype="datetime64[us]")
    with pytest.raises(ValueError, match="offsets of attributes"):
        encode_rows(keys, times, attributes=(np.array(offsets), np.zeros(3, dtype=np.uint8)))


def test_columns_of_another_length_are_refused() -> None:
    with pytest.raises(ValueError, match=r"labels must be .* of shape \(2,\)"):
        encode_rows(np.arange(2, dtype=np.uint64), np.zeros(2, dtype="datetime64[us]"), np.zeros(3, dtype=np.int64))


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("keys", np.arange(4, dtype=np.int32)),
        ("keys", np.arange(8, dtype=np.uint64)[::2]),
        ("keys", np.zeros((4, 1), dtype=np.uint64)),
        ("times", np.zeros(4, dtype="datetime64[ns]")),
        ("times", np.zeros(4, dtype=np.int32)),
        ("labels", np.zeros(4, dtype=np.int32)),
        ("targets", np.zeros(4, dtype=np.float32)),
        ("attributes", (np.zeros(5, dtype=np.int32), np.zeros(3, dtype=np.uint8))),
        ("attributes", (np.zeros(5, dtype=np.int64), np.zeros(3, dtype=np.int64))),
    ],
)
def test_columns_of_another_type_are_refused_and_no_other_memory_is_sent(name: str, wrong: object) -> None:
    columns: dict[str, Any] = {"keys": np.arange(4, dtype=np.uint64), "times": np.zeros(4, dtype="datetime64[us]")}
    with pytest.raises(ValueError, match="must be a contiguous"):
        encode_rows(**(columns | {name: wrong}))
