"""Compact prediction files: what was written comes back, in less than two bytes each; anything else is refused by its reason."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import CorruptFile
from modyn_dagster.evaluation.predictions.codes import CodedOutputs, block_sizes, encode
from modyn_dagster.evaluation.predictions.compact_file import CompactFile, key_digest, read_compact
from modyn_dagster.evaluation.predictions.files import write_content
from modyn_dagster.keys import keys_of
from modyn_dagster.values.digest import checksum_of
from tests.fastpath.damaging import variants


def content(n: int, *, n_exact: int = 0) -> CompactFile:
    outputs = np.random.default_rng(n).normal(size=(n, 2)).astype(np.float32)
    outputs[:n_exact, 0] = np.inf
    keys = keys_of(3, np.arange(n))
    return CompactFile(key_digest(keys), keys_of(3, [n, n + 5]), encode(outputs, block_sizes(keys))[0])


def assert_equal(one: CompactFile, other: CompactFile) -> None:
    assert one.digest == other.digest
    np.testing.assert_array_equal(one.deleted, other.deleted)
    for name in ("widths", "bases", "codes", "exact"):
        a, b = getattr(one.coded, name), getattr(other.coded, name)
        assert a.dtype == b.dtype
        np.testing.assert_array_equal(a, b)


@given(st.integers(0, 40), st.integers(0, 3))
def test_what_was_written_comes_back(n: int, n_exact: int) -> None:
    written = content(n, n_exact=min(n, n_exact))
    assert_equal(CompactFile.from_bytes(written.to_bytes()), written)


def test_a_file_has_less_than_two_bytes_a_prediction(tmp_path: Path) -> None:
    path, keys = tmp_path / "p.codes", keys_of(3, np.arange(5_000))
    written = write_content(path, content(5_000).to_bytes(), keys)
    assert (written.n_samples, written.first_key, written.last_key) == (5_000, int(keys[0]), int(keys[-1]))
    assert path.stat().st_size / 5_000 < 1.9
    assert_equal(read_compact(path, written.checksum), content(5_000))


def forged(**changed: Any) -> bytes:
    sound = content(40, n_exact=2)
    fields = {name: changed.get(name, getattr(sound.coded, name)) for name in ("widths", "bases", "codes", "exact")}
    return CompactFile(sound.digest, changed.get("deleted", sound.deleted), CodedOutputs(**fields)).to_bytes()


def with_code(code: int) -> bytes:
    codes = content(40, n_exact=2).coded.codes.copy()
    codes[7] = code
    return forged(codes=codes)


FORGED = {
    "nothing": (b"", "0 bytes, fewer than a header has"),
    "another format": (b"ARROW1\0\0" + forged()[8:], "a header that begins with b'ARROW1"),
    "cut short": (forged()[:-1], r"\d+ bytes, not the \d+ of 40 samples"),
    "longer": (forged() + b"\0", r"\d+ bytes, not the \d+ of 40 samples"),
    "more samples than memory": (forged()[:8] + (2**60).to_bytes(8, "little") + forged()[16:], r"not the \d+ of"),
    "a code that no difference has": (with_code(32_767), "the code 32767, larger than any"),
    "an exact sample without logits": (with_code(0), "exact logits of 2 samples, codes that announce 3"),
    "a width that no block has": (forged(widths=np.array([928], np.uint16)), "the width 928, larger than any"),
    "a base beyond all places": (forged(bases=np.array([2**31 - 1], np.int32)), "codes of differences beyond any"),
    "no block": (forged(widths=np.array([], np.uint16), bases=np.array([], np.int32)), "40 samples in 0 blocks"),
    "more blocks than samples": (forged(widths=np.zeros(41, np.uint16), bases=np.zeros(41, np.int32)), "40 samples in 41 blocks"),
    "deleted keys out of order": (forged(deleted=np.array([9, 9], np.uint64)), "deleted keys that are not strictly ascending"),
    "bits behind the codes": (
        CompactFile.to_bytes(content(1))[:-1] + b"\x80",
        "bits behind the last code",
    ),
}


@pytest.mark.parametrize("name", FORGED)
def test_a_forged_file_is_refused_by_name_and_reason(tmp_path: Path, name: str) -> None:
    damaged, reason = FORGED[name]
    path = tmp_path / "p.codes"
    path.write_bytes(damaged)
    with pytest.raises(CorruptFile, match=rf"p\.codes: (.|\n)*({reason})"):
        read_compact(path, checksum_of(path))


def test_a_missing_file_and_another_checksum_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.codes"
    with pytest.raises(CorruptFile, match="found no file"):
        read_compact(path, "0" * 32)
    path.write_bytes(forged())
    with pytest.raises(CorruptFile, match="expected checksum 0000"):
        read_compact(path, "0" * 32)


@pytest.mark.parametrize("n", [1_000, pytest.param(50_000, marks=pytest.mark.soak("fuzz"))])
def test_any_damage_is_an_error_or_read_in_bounds(n: int) -> None:
    sound = content(40, n_exact=2).to_bytes()
    for _, damaged in variants(sound, 1, n):
        try:
            found = CompactFile.from_bytes(damaged)
        except ValueError:
            continue
        assert found.to_bytes() == damaged
        sizes = np.diff(np.linspace(0, len(found.coded.codes), len(found.coded.widths) + 1).astype(np.int64))
        assert found.coded.outputs(sizes).shape == (len(found.coded.codes), 2)
