"""Bounded rate of a verification."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.errors import ConfigError, CorruptFile
from modyn_dagster.pipeline.integrity.pacing import Pace
from modyn_dagster.values.digest import bytes_digest


class Clock:
    """A clock that only sleeping moves."""

    def __init__(self) -> None:
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now += seconds


@given(st.floats(1, 1e9), st.lists(st.integers(0, 1 << 20), max_size=20))
def test_no_more_is_read_than_the_rate_allows(rate: float, sizes: list[int]) -> None:
    clock = Clock()
    pace = Pace(rate, clock=lambda: clock.now, sleep=clock.sleep)
    for size in sizes:
        pace.took(size)
    assert pace.n_bytes == sum(sizes)
    assert clock.now == pytest.approx(sum(sizes) / rate)


def test_without_a_rate_nothing_waits() -> None:
    pace = Pace(clock=lambda: 0.0, sleep=lambda _: pytest.fail("it waited"))
    pace.took(1 << 40)


@pytest.mark.parametrize("rate", [0.0, -1.0, float("nan")])
def test_a_rate_must_be_positive(rate: float) -> None:
    with pytest.raises(ConfigError, match="more than 0"):
        Pace(rate)


def test_a_folder_and_a_missing_file_are_damage(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"content")
    Pace().verify(path, bytes_digest(b"content"))
    with pytest.raises(CorruptFile, match="checksum"):
        Pace().verify(path, bytes_digest(b"other"))
    with pytest.raises(CorruptFile, match="no file"):
        Pace().verify(tmp_path / "none", bytes_digest(b"content"))
    with pytest.raises(CorruptFile, match="directory"):
        Pace().verify(tmp_path, bytes_digest(b"content"))
