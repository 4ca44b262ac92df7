"""Classes of errors: a table of real ones, and the law of chains."""

import concurrent.futures
import errno
import http.client
import socket
import urllib.error
from concurrent.futures.process import BrokenProcessPool
from email.message import Message
from typing import Any

import psycopg2
import psycopg2.errors
import pytest
from fsspec.exceptions import FSTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy.exc import DBAPIError, IntegrityError, OperationalError

from modyn_dagster.errors import (
    ConfigError,
    CorruptFile,
    DatabaseDown,
    DatabaseFull,
    LostClaim,
    ModynError,
    NonFiniteLoss,
    SchemaMismatch,
    SchemaOutdated,
    StorageError,
    UnknownName,
    WriteFailed,
    WrongShape,
    error_class,
    is_permanent,
    is_transient,
    one_line,
)


def refused_write(number: int) -> Exception:
    error = WriteFailed("home/7.arrow", "refused")
    error.__cause__ = OSError(number, "refused")
    return error


def hidden(cause: Exception) -> Exception:
    """Error as the model store raises it, which hides texts that may hold secrets."""
    try:
        try:
            raise cause
        except Exception:  # noqa: BLE001 - whatever is given
            raise StorageError("s3://models: it refused") from None
    except StorageError as error:
        return error


def http_error(status: int) -> Exception:
    return urllib.error.HTTPError("http://store/models", status, "no", Message(), None)


def object_store_error(status: int, code: str) -> Exception:
    botocore = pytest.importorskip("botocore.exceptions")
    response = {"Error": {"Code": code}, "ResponseMetadata": {"HTTPStatusCode": status}}
    made: Exception = botocore.ClientError(response, "PutObject")
    return made


class StatedError(psycopg2.Error):  # type: ignore[misc]  # the driver has no types
    """Error of the driver with a state, which only the server can give to a real one."""

    def __init__(self, state: str) -> None:
        super().__init__(state)
        self.state = state

    @property
    def pgcode(self) -> str:
        return self.state


def by_sqlalchemy(state: str) -> Exception:
    return DBAPIError("select 1", {}, StatedError(state))


TRANSIENT = [
    *(OSError(number, "it failed") for number in (errno.EIO, errno.ENOSPC, errno.EDQUOT, errno.EROFS)),
    *(OSError(number, "it failed") for number in (errno.EMFILE, errno.ENFILE, errno.ESTALE, errno.ETIMEDOUT)),
    ConnectionResetError("by peer"),
    BrokenPipeError("gone"),
    TimeoutError("timed out"),
    concurrent.futures.TimeoutError("of a pool"),
    urllib.error.URLError(TimeoutError("timed out")),
    socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution"),
    urllib.error.URLError(socket.gaierror(socket.EAI_AGAIN, "temporary failure in name resolution")),
    FSTimeoutError(),
    refused_write(errno.ENOSPC),
    refused_write(errno.EACCES),
    refused_write(errno.EPERM),
    DatabaseDown("127.0.0.1:5432/modyn"),
    DatabaseFull("127.0.0.1:5432/modyn", "no space left on device"),
    *map(by_sqlalchemy, ("08006", "53100", "53200", "53300", "57P01", "57P02", "57P03", "58030", "25006", "40001", "40P01")),
    OperationalError("select 1", {}, psycopg2.OperationalError("server closed the connection unexpectedly")),
    BrokenProcessPool("a process died"),
    concurrent.futures.BrokenExecutor("a worker died"),
    RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed."),
    http_error(503),
    http_error(429),
    http.client.RemoteDisconnected("closed"),
    hidden(OSError(errno.EIO, "it failed")),
    ExceptionGroup("several", [ValueError("one"), OSError(errno.ENOSPC, "full")]),
]
PERMANENT = [
    ConfigError("pipeline p", "training.model", {}, "it refused"),
    CorruptFile("7.arrow", "a checksum", "another"),
    SchemaMismatch("1.csv", "a", "b"),
    WrongShape((2,), (3,)),
    TypeError("unsupported operand"),
    ImportError("no module"),
    NotImplementedError(),
]
OTHER = [
    FileNotFoundError(errno.ENOENT, "no such file"),
    PermissionError(errno.EACCES, "a file of user code"),
    socket.gaierror(socket.EAI_NONAME, "name or service not known"),
    MemoryError(),
    NonFiniteLoss(3, float("nan"), [1], {}),
    RuntimeError("of user code"),
    ZeroDivisionError(),
    LostClaim("000001-000000", 1),
    UnknownName("run", 3),
    SchemaOutdated(None, "r0100", "upgrade"),
    http_error(404),
    hidden(http_error(403)),
    IntegrityError("insert", {}, StatedError("23505")),
    by_sqlalchemy("42P01"),
]


@pytest.mark.parametrize("error", TRANSIENT, ids=repr)
def test_faults_of_machines_and_servers_are_transient(error: Exception) -> None:
    assert error_class(error) == "transient"
    assert is_transient(error)
    assert not is_permanent(error)


@pytest.mark.parametrize("error", PERMANENT, ids=repr)
def test_faults_of_specs_files_and_code_are_permanent(error: Exception) -> None:
    assert error_class(error) == "permanent"
    assert is_permanent(error)


@pytest.mark.parametrize("error", OTHER, ids=repr)
def test_everything_else_is_neither(error: Exception) -> None:
    assert error_class(error) == "other"


@pytest.mark.parametrize(("status", "code", "expected"), [(503, "SlowDown", "transient"), (403, "AccessDenied", "other")])
def test_an_object_store_that_is_overloaded_is_waited_for_and_one_that_refuses_is_not(
    status: int, code: str, expected: str
) -> None:
    assert error_class(object_store_error(status, code)) == expected
    assert error_class(hidden(object_store_error(status, code))) == expected


def fresh(error: Exception) -> Exception:
    """The same error without a place in a chain."""
    kind, arguments = error.__class__, error.args
    made = kind.__new__(kind, *arguments)
    made.__dict__.update(error.__dict__)
    made.args = arguments
    return made


PLAIN: list[Any] = [
    OSError(errno.ENOSPC, "full"),
    TypeError("no"),
    ValueError("no"),
    DatabaseDown("x"),
    CorruptFile("7", "a", "b"),
]


@given(st.lists(st.tuples(st.sampled_from(PLAIN), st.booleans()), min_size=1, max_size=6))
def test_a_chain_is_transient_exactly_if_one_of_its_errors_is(links: list[tuple[Any, bool]]) -> None:
    chain = [fresh(error) for error, _ in links]
    for error, cause, (_, is_named) in zip(chain, chain[1:], links):
        if is_named:
            error.__cause__ = cause
        else:
            error.__context__ = cause
    assert is_transient(chain[0]) == any(is_transient(fresh(error)) for error, _ in links)


def test_a_chain_that_bites_its_tail_has_a_class() -> None:
    one, two = ValueError("one"), TypeError("two")
    one.__cause__, two.__cause__ = two, one
    assert error_class(one) == "permanent"


def test_an_error_as_one_line_names_its_class_and_holds_no_secret() -> None:
    assert one_line(ModynError("postgresql://ann:pass@host/modyn is down\nand more")) == "postgresql://host/modyn is down"
    assert one_line(ValueError("\n  first  \nsecond")) == "ValueError: first"
    assert one_line(KeyboardInterrupt()) == "KeyboardInterrupt"
