"""Calls in a thread that their caller does not wait for longer than it wants to."""

import subprocess
import sys
from contextvars import ContextVar
from threading import Event

import pytest

from modyn_dagster.bounded_call import BoundedCall, StillGoing

NAME: ContextVar[str] = ContextVar("name", default="nobody")
LONG = 60.0


def test_a_call_has_the_context_of_its_caller_and_gives_its_result() -> None:
    token = NAME.set("caller")
    try:
        call = BoundedCall("call", NAME.get)
        assert call.result(LONG) == "caller"
    finally:
        NAME.reset(token)
    assert call.has_ended


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("a server's own"), KeyboardInterrupt("any")])
def test_its_error_is_raised_as_it_is(error: BaseException) -> None:
    def fail() -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        BoundedCall("call", fail).result(LONG)
    assert raised.value is error


def test_one_that_hangs_says_where_and_may_be_asked_again() -> None:
    entered, let_go = Event(), Event()

    def users_function() -> str:
        entered.set()
        let_go.wait(LONG)
        return "done"

    call = BoundedCall("call", users_function)
    assert entered.wait(LONG)
    with pytest.raises(StillGoing):
        call.result(0.01)
    assert not call.has_ended
    # Not in the standard library, which waits for it.
    assert call.place().startswith("users_function (")
    assert call.place().rpartition(":")[0].endswith("test_bounded_call.py")
    let_go.set()
    assert call.result(LONG) == "done"


@pytest.mark.process
def test_a_process_ends_although_a_call_hangs() -> None:
    code = "import time; from modyn_dagster.bounded_call import BoundedCall; BoundedCall('call', lambda: time.sleep(600))"
    assert subprocess.run([sys.executable, "-c", code], timeout=LONG, check=False).returncode == 0
