"""Private files: what our processes write is closed to other accounts, and so is the folder of all state; and secrets in files.

Root's server of Postgres runs under another account, which must come through ``MODYN_HOME``: there the folder can be entered, not
listed.

For every secret setting ``X`` the variable ``X_FILE`` may name a file that holds its value. Files of secrets that containers
mount are readable by every account there (Docker: 0444, Kubernetes: 0644), so such a file is accepted; the folder above it keeps
others out. A file that everybody may write is refused: it would let them choose the server that learns the password.
"""

import os
import shlex
import stat
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Final

from modyn_dagster.errors import ConfigError

_PRIVATE: Final = 0o700
_ENTERABLE: Final = 0o711

#: Settings whose values are secrets.
SECRETS: Final = ("MODYN_POSTGRES_URL", "MODYN_POSTGRES_OWNER_URL", "MODYN_MLFLOW_URI", "MODYN_UI_TOKEN")
_SUFFIX: Final = "_FILE"
#: No secret is longer; a log or a device, named by mistake, is not read to its end.
_MOST_BYTES: Final = 16_384


def keep_files_private() -> None:
    """Let files and folders that this process and its children make from now on be closed to other accounts."""
    os.umask(os.umask(0o077) | 0o077)


def make_home(home: Path) -> None:
    """Make the folder of all state and missing folders above it; existing ones stay as they are. Raises ``OSError``."""
    missing = [folder for folder in (home, *home.parents) if not folder.exists()]
    mode = _ENTERABLE if os.geteuid() == 0 else _PRIVATE
    for folder in reversed(missing):
        folder.mkdir(exist_ok=True)
        # Not by ``mkdir``: the umask would close it to the account of root's server too.
        folder.chmod(mode)


def open_to_others(home: Path) -> str | None:
    """Describe how other accounts get into an existing folder of state, and the remedy; None where they do not."""
    if not home.is_dir():
        return None
    mode = stat.S_IMODE(home.stat().st_mode)
    allowed = _ENTERABLE if os.geteuid() == 0 else _PRIVATE
    if not mode & ~allowed:
        return None
    remedy = f"chmod {allowed:o} {shlex.quote(str(home))}"
    return f"{home} is open to other accounts (mode {mode:04o}), who can read its older files; run `{remedy}`"


def secret_setting(environment: Mapping[str, str], name: str) -> str | None:
    """Value of a secret setting: of its variable, else of the file that ``<name>_FILE`` names; None without either.

    Empty variables count as absent. A line break at the end of the file is no part of the value.

    Raises ``ConfigError`` for a file that cannot be read, is empty, has several lines or may be written by everybody.
    """
    if value := environment.get(name):
        return value
    path = environment.get(name + _SUFFIX)
    return read_secret(path, source="environment", field=name + _SUFFIX) if path else None


def without_files(names: Iterable[str]) -> dict[str, str]:
    """Variables that keep a child from reading the files of the secrets that it is given by their variables."""
    return {name + _SUFFIX: "" for name in names if name in SECRETS}


def read_secret(path: str, *, source: str, field: str) -> str:
    """Read the one line of a file with a secret. Raises ``ConfigError`` as ``secret_setting`` does, naming the field."""
    # It may be the secret itself, put there by mistake.
    shown = path if path.startswith("/") and "@" not in path else "..."

    def refused(rule: str) -> ConfigError:
        return ConfigError(source, field, shown, rule)

    try:
        # Without waiting for a pipe that nobody writes to.
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        with open(descriptor, "rb") as file:
            mode = os.fstat(descriptor).st_mode
            if not stat.S_ISREG(mode):
                raise refused("must be a file")
            if mode & stat.S_IWOTH:
                raise refused("may be written by every account; close it: `chmod o-w`")
            content = file.read(_MOST_BYTES + 1)
    except OSError as error:
        # Without the error, which would show the path.
        raise refused(f"cannot be read: {error.strerror}") from None
    if len(content) > _MOST_BYTES:
        raise refused(f"must hold one secret, at most {_MOST_BYTES} bytes")
    try:
        text = content.decode().removesuffix("\n").removesuffix("\r")
    except UnicodeDecodeError:
        # Without the error, which would show a part of the content.
        raise refused("must be text in UTF-8") from None
    if not text or not text.isprintable():
        raise refused("must hold the secret in one line, and nothing else")
    return text
