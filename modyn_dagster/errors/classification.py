"""Classes of errors: transient ones are waited out, permanent ones fail at once, all others cost an attempt.

An error counts with everything that it was raised from, and a transient cause prevails. Errors of libraries are told by the
names of their classes, so that nothing has to be imported for it.
"""

import errno
import socket
from collections.abc import Iterator
from typing import Final, Literal

from modyn_dagster.errors.inputs import ConfigError, DataError
from modyn_dagster.errors.running import DeliveryRefused, WrongShape
from modyn_dagster.errors.storage import CatalogError, CorruptFile, DatabaseDown, DatabaseFull, WriteFailed

ErrorClass = Literal["transient", "permanent", "other"]

#: Faults of specs, files and code: the next attempt reads the same ones.
_PERMANENT: Final = (
    ConfigError,
    DataError,
    CorruptFile,
    WrongShape,
    DeliveryRefused,
    TypeError,
    AttributeError,
    NameError,
    ImportError,
    SyntaxError,
    NotImplementedError,
)
#: Errors of a machine or a server that are neither: a file that is missing, memory that a training does not have.
_UNDECIDED: Final = (OSError, MemoryError, CatalogError)

#: The disk, its file system, the table of open files, and the network to a disk or a server.
_TRANSIENT_ERRNOS: Final = frozenset(
    {
        errno.EIO,
        errno.EREMOTEIO,
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.EAGAIN,
        errno.EBUSY,
        errno.ESTALE,
        errno.ENOTCONN,
        errno.ETIMEDOUT,
        errno.EHOSTDOWN,
        errno.EHOSTUNREACH,
        errno.ENETDOWN,
        errno.ENETUNREACH,
        errno.ENETRESET,
    }
)
#: Refusals that concern our own folders alone: a path that a spec names with a mistake stays refused.
_REFUSED_ERRNOS: Final = frozenset({errno.EACCES, errno.EPERM})
#: Classes and codes of SQLSTATE: connections, resources (disk full, too many connections), a server that stops, starts, hands
#: over to another one or loses its disk, and transactions that another one stood in the way of.
_TRANSIENT_STATES: Final = ("08", "53", "57P0", "58030", "25006", "40001", "40P01")
#: Libraries whose errors carry an HTTP status, and the class names of those that lost their connection.
_HTTP_LIBRARIES: Final = frozenset(
    {
        "aiobotocore",
        "aiohttp",
        "azure",
        "botocore",
        "fsspec",
        "gcsfs",
        "google",
        "http",
        "httpx",
        "requests",
        "s3fs",
        "urllib",
        "urllib3",
    }
)
_DATABASE_LIBRARIES: Final = frozenset({"psycopg", "psycopg2"})
_LOST_CONNECTIONS: Final = frozenset(
    {
        "ClientConnectionError",
        "ClientOSError",
        "ConnectError",
        "ConnectTimeout",
        "ConnectTimeoutError",
        "ConnectionClosedError",
        "EndpointConnectionError",
        "HTTPClientError",
        "IncompleteRead",
        "IncompleteReadError",
        "ProtocolError",
        "ReadTimeout",
        "ReadTimeoutError",
        "RemoteDisconnected",
        "ResponseStreamingError",
        "ServerDisconnectedError",
        "ServiceRequestError",
        "ServiceResponseError",
        "TransportError",
    }
)
_TOO_MANY_REQUESTS: Final = 429
_SERVER_ERROR: Final = 500
#: Message of torch's loader when one of its processes was killed.
_LOST_WORKER: Final = "DataLoader worker"


def error_class(error: BaseException) -> ErrorClass:
    """Class of an error by its chain of causes.

    >>> error_class(OSError(errno.ENOSPC, "no space left")), error_class(TypeError()), error_class(ZeroDivisionError())
    ('transient', 'permanent', 'other')
    """
    if any(_passes(each) for each in _chain(error)):
        return "transient"
    causes = list(_with_causes(error))
    fails_again = any(isinstance(each, _PERMANENT) for each in causes)
    return "permanent" if fails_again and not any(isinstance(each, _UNDECIDED) for each in causes) else "other"


def is_permanent(error: BaseException) -> bool:
    """Test that an error comes again with every attempt; False for errors that are neither."""
    return error_class(error) == "permanent"


def is_transient(error: BaseException) -> bool:
    """Test that an error passes without a change of specs, files or code, so that waiting helps."""
    return error_class(error) == "transient"


def _passes(error: BaseException) -> bool:
    """Test one error without its causes."""
    if isinstance(error, (DatabaseDown, DatabaseFull, ConnectionError, TimeoutError)):
        return True
    if isinstance(error, socket.gaierror):
        # Its numbers are not those of other errors of the system.
        return error.errno == socket.EAI_AGAIN
    if isinstance(error, WriteFailed) and isinstance(cause := error.__cause__, OSError) and cause.errno in _REFUSED_ERRNOS:
        return True
    if isinstance(error, OSError) and error.errno in _TRANSIENT_ERRNOS:
        return True
    return _is_database_fault(error) or _is_server_fault(error) or _is_lost_process(error)


def _is_database_fault(error: BaseException) -> bool:
    state = getattr(error, "pgcode", None) or getattr(error, "sqlstate", None)
    if isinstance(state, str):
        return state.startswith(_TRANSIENT_STATES)
    # Without a state the client failed: no connection, or one that broke.
    return _library(error) in _DATABASE_LIBRARIES and type(error).__name__ in ("OperationalError", "AdminShutdown")


def _is_server_fault(error: BaseException) -> bool:
    if not any(base.__module__.partition(".")[0] in _HTTP_LIBRARIES for base in type(error).__mro__):
        return False
    if any(base.__name__ in _LOST_CONNECTIONS for base in type(error).__mro__):
        return True
    status = _http_status(error)
    return status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR


def _http_status(error: BaseException) -> int:
    """HTTP status that an error carries, 0 without one."""
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        found = response.get("ResponseMetadata", {}).get("HTTPStatusCode")
        return found if isinstance(found, int) else 0
    for holder in (error, response):
        for name in ("status_code", "status", "code"):
            if isinstance(found := getattr(holder, name, None), int):
                return found
    return 0


def _is_lost_process(error: BaseException) -> bool:
    """Test for a process of a pool or loader that was killed; the process of the training itself dies without an error."""
    return any(base.__name__ == "BrokenExecutor" for base in type(error).__mro__) or (
        isinstance(error, RuntimeError) and str(error).startswith(_LOST_WORKER)
    )


def _library(error: BaseException) -> str:
    return type(error).__module__.partition(".")[0]


def _with_causes(error: BaseException | None) -> Iterator[BaseException]:
    seen: set[int] = set()
    while error is not None and id(error) not in seen:
        seen.add(id(error))
        yield error
        error = error.__cause__


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and all errors before it: named causes, those that it was raised beside, members of groups.

    Also those that `raise ... from None` hides from people, as the model store does with texts that may hold secrets.
    """
    waiting, seen = [error], set[int]()
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        yield each
        # `orig` of SQLAlchemy, `reason` of urllib.
        others = [each.__cause__, each.__context__, getattr(each, "orig", None), getattr(each, "reason", None)]
        if isinstance(each, BaseExceptionGroup):
            others += each.exceptions
        waiting += [other for other in others if isinstance(other, BaseException)]
