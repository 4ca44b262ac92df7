"""Operating-system account that a server runs under; Postgres refuses to run as root."""

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from modyn_dagster.errors import ServerFailed, WriteFailed

_UNPRIVILEGED = ("postgres", "nobody")


@dataclass(frozen=True, slots=True)
class Account:
    """Account that runs the server and owns its files; ``dropped`` when this process runs under another one, root."""

    uid: int
    gid: int
    dropped: bool

    @classmethod
    def for_server(cls, owned: Path | None = None) -> Self:
        """Choose the account: this process's own; for root the owner of the folder ``owned``, else `postgres` or `nobody`."""
        if os.geteuid() != 0:
            return cls(os.geteuid(), os.getegid(), dropped=False)
        if owned is not None and owned.exists() and owned.stat().st_uid != 0:
            return cls(owned.stat().st_uid, owned.stat().st_gid, dropped=True)
        for name in _UNPRIVILEGED:
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return cls(entry.pw_uid, entry.pw_gid, dropped=True)
        raise ServerFailed(
            "Postgres does not run as root, and neither an account `postgres` nor `nobody` exists; "
            "create one, or start as a normal user"
        )

    def run(
        self,
        command: Sequence[str | Path],
        *,
        folder: Path = Path("/"),
        inherit: Sequence[int] = (),
        timeout: float = 60,
    ) -> subprocess.CompletedProcess[str]:
        """Run a program under this account in ``folder`` without this process's variables, and capture its output.

        ``inherit`` are open file descriptors that the program and its descendants keep.
        """
        return subprocess.run(
            [str(part) for part in command],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            check=False,
            timeout=timeout,
            cwd=folder,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TZ": "UTC"},
            user=self.uid if self.dropped else None,
            group=self.gid if self.dropped else None,
            extra_groups=[] if self.dropped else None,
            umask=0o077,
            pass_fds=inherit,
        )

    def can_execute(self, program: Path) -> bool:
        """Tell whether the account can run ``program --version``, and so enter every folder on the way."""
        try:
            return self.run([program, "--version"]).returncode == 0
        except (FileNotFoundError, PermissionError):
            return False

    def can_write(self, folder: Path) -> bool:
        """Tell whether the account can enter and write ``folder``, and enter every folder on the way."""
        return self.run(["/bin/sh", "-c", 'test -w "$1" && test -x "$1"', "sh", folder]).returncode == 0

    def own(self, path: Path) -> None:
        """Give ``path``, which this process made, to the account."""
        if self.dropped:
            shutil.chown(path, self.uid, self.gid)

    def make_folder(self, folder: Path) -> None:
        """Make ``folder``, closed to all other accounts except root; its parents get the usual permissions."""
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
            folder.mkdir(mode=0o700, exist_ok=True)
            self.own(folder)
        except OSError as error:
            raise WriteFailed(folder, error.strerror or str(error)) from error
