"""Fixed threads and algorithms: as asked within the block, and as they were after it, however it ends."""

import threading
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from modyn_dagster.reproducibility.determinism import fixed_algorithms

#: Number of threads, deterministic algorithms, warnings only, and cuDNN's benchmark.
Settings = tuple[int, bool, bool, bool]


def settings_now() -> Settings:
    deterministic, warn_only = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    return torch.get_num_threads(), deterministic, warn_only, torch.backends.cudnn.benchmark


def apply(settings: Settings) -> None:
    torch.set_num_threads(settings[0])
    torch.use_deterministic_algorithms(settings[1], warn_only=settings[2])
    torch.backends.cudnn.benchmark = settings[3]


@pytest.fixture(autouse=True, scope="module")
def _restored() -> Iterator[None]:
    before = settings_now()
    yield
    apply(before)


# torch forgets `warn_only` where algorithms need not be deterministic.
SETTINGS = st.tuples(st.integers(1, 3), st.booleans(), st.booleans(), st.booleans()).map(
    lambda drawn: (drawn[0], drawn[1], drawn[1] and drawn[2], drawn[3])
)


@given(SETTINGS, st.integers(1, 3), st.booleans(), SETTINGS, st.booleans())
def test_settings_hold_within_the_block_and_are_restored(
    before: Settings, threads: int, deterministic: bool, changed: Settings, fails: bool
) -> None:
    apply(before)
    try:
        with fixed_algorithms(threads, deterministic=deterministic):
            assert settings_now() == (threads, deterministic, False, False)
            with fixed_algorithms(2, deterministic=True):
                assert settings_now() == (2, True, False, False)
            assert settings_now() == (threads, deterministic, False, False)
            # User code may change them.
            apply(changed)
            if fails:
                raise LookupError
    except LookupError:
        assert fails
    assert settings_now() == before


def test_a_number_of_threads_that_torch_refuses_changes_nothing_and_keeps_no_one_waiting() -> None:
    before = settings_now()
    with pytest.raises(RuntimeError), fixed_algorithms(0, deterministic=True):
        pass
    assert settings_now() == before
    entered = threading.Event()

    def enter() -> None:
        with fixed_algorithms(1, deterministic=True):
            entered.set()

    thread = threading.Thread(target=enter, daemon=True)
    thread.start()
    assert entered.wait(60)
    thread.join()
