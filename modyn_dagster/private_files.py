"""Private files: what our processes write is closed to other accounts, and so is the folder of all state.

Root's server of Postgres runs under another account, which must come through ``MODYN_HOME``: there the folder can be entered, not
listed.
"""

import os
import shlex
import stat
from pathlib import Path
from typing import Final

_PRIVATE: Final = 0o700
_ENTERABLE: Final = 0o711


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
