"""Reading at a bounded rate, so that a verification leaves the disk to those who work."""

import errno
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from modyn_dagster.errors import ConfigError, CorruptFile
from modyn_dagster.files.mounting import files_at
from modyn_dagster.values.digest import new_hash

_CHUNK: Final = 1 << 20


class Pace:
    """A bound on the bytes read per second, over everything that is read with it.

    Args:
        rate: bytes per second; None: no bound.
        clock, sleep: seconds since some moment, and a wait.
    """

    def __init__(
        self,
        rate: float | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        if rate is not None and not rate > 0:
            raise ConfigError("verify", "rate", rate, "must be more than 0 bytes per second")
        self._rate, self._clock, self._sleep = rate, clock, sleep
        self._begin: float | None = None
        #: Bytes read so far.
        self.n_bytes = 0

    def took(self, n_bytes: int) -> None:
        """Count bytes that were read, and wait until as many may have been."""
        now = self._clock()
        if self._begin is None:
            self._begin = now
        self.n_bytes += n_bytes
        if self._rate is not None and (ahead := self.n_bytes / self._rate - (now - self._begin)) > 0:
            self._sleep(ahead)

    def verify(self, path: Path, checksum: str) -> None:
        """Read a file, and raise ``CorruptFile`` unless it exists and has this checksum (hex BLAKE2b, 16 bytes)."""
        digest, expected = new_hash(), f"checksum {checksum}"
        try:
            with files_at(path).open_stored(path) as file:
                while chunk := file.read(_CHUNK):
                    digest.update(chunk)
                    self.took(len(chunk))
        except FileNotFoundError:
            raise CorruptFile(path, expected, "no file") from None
        except OSError as error:
            # Sectors that cannot be read are damage, and so are folders in place of files; too many open files are not.
            if error.errno not in (errno.EIO, errno.EISDIR, errno.ENOTDIR, errno.ELOOP, errno.EACCES):
                raise
            raise CorruptFile(path, expected, error.strerror or str(error)) from error
        if digest.hexdigest() != checksum:
            raise CorruptFile(path, expected, digest.hexdigest())
