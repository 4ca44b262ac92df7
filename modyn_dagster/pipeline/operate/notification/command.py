"""Command: a program of this machine that reads an event from its standard input."""

import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO, Final

from modyn_dagster.errors import ChannelAway, ConfigError, NotDelivered
from modyn_dagster.pipeline.event import Event, event_json
from modyn_dagster.spec.notification.channels import ChannelName

#: Characters of the standard error that an error shows: the last ones.
_SHOWN: Final = 500
#: No character takes more bytes in UTF-8.
_BYTES_PER_CHARACTER: Final = 4


class CommandChannel:
    """Channel that runs a program without a shell, in the project's folder."""

    name: Final[ChannelName] = "command"

    def __init__(self, words: Sequence[str], folder: Path, *, source: str) -> None:
        self._words, self._folder, self._source = words, folder, source

    @property
    def target(self) -> str:
        """Program, as the spec names it; arguments may hold what is not for logs."""
        return self._words[0]

    def deliver(self, event: Event, event_id: str, within: float) -> None:
        """Run the program with the event as JSON on its standard input, and wait for its end.

        Beside the variables of this process it gets ``MODYN_EVENT_NAME``, ``MODYN_EVENT_KIND`` and ``MODYN_EVENT_ID``. Its
        standard output is that of this process.

        Args:
            event: written to the standard input.
            event_id: equal at every try of one event.
            within: seconds after which the program is killed, with the processes of its session.

        Raises:
            ChannelAway: it did not end in time.
            NotDelivered: it ended with another exit code than 0, or by a signal.
            ConfigError: there is no such program.
        """
        program = program_path(self._words, self._folder, source=self._source)
        variables = {"MODYN_EVENT_NAME": event.name, "MODYN_EVENT_KIND": event.kind, "MODYN_EVENT_ID": event_id}
        # Files, not pipes: a program may end without reading, and what it leaves running may hold a pipe open.
        with tempfile.TemporaryFile() as given, tempfile.TemporaryFile() as complaints:
            given.write(event_json(event).encode() + b"\n")
            given.seek(0)
            try:
                child = subprocess.Popen(
                    [program, *self._words[1:]],
                    cwd=self._folder,
                    env=os.environ | variables,
                    stdin=given,
                    stderr=complaints,
                    start_new_session=True,
                )
            except OSError as error:
                raise NotDelivered(self.name, self.target, f"cannot be started: {error.strerror}") from error
            ending = self._await(child, within)
            if ending is None:
                reason = f"was ended after {within:.3g} seconds{_tail(complaints)}"
                raise ChannelAway(self.name, self.target, reason)
            if ending != 0:
                how = f"exit code {ending}" if ending > 0 else f"signal {signal.Signals(-ending).name}"
                raise NotDelivered(self.name, self.target, f"ended with {how}{_tail(complaints)}")

    def _await(self, child: "subprocess.Popen[bytes]", within: float) -> int | None:
        """Wait for the exit code; None for a program that was killed because it took too long."""
        try:
            return child.wait(within)
        except subprocess.TimeoutExpired:
            return None
        finally:
            # Also when this process is interrupted: Ctrl-C does not reach another session.
            if child.returncode is None:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.wait()


def program_path(words: Sequence[str], folder: Path, *, source: str) -> str:
    """Find the program of a command: on PATH by its name, else by its path from the project's folder or the root.

    Raises ``ConfigError`` where there is none that may be run.
    """
    program = words[0]
    if "/" not in program:
        path, rule = shutil.which(program), "must be on PATH, or be named by its path"
    else:
        path, rule = (
            shutil.which(str(folder / program)),
            "must be a file that may be executed, from the project's folder or the root",
        )
    if path is None:
        raise ConfigError(source, "notify.command", program, rule)
    return path


def _tail(complaints: IO[bytes]) -> str:
    """End of the standard error, behind a colon; empty where nothing was written."""
    size = complaints.seek(0, os.SEEK_END)
    complaints.seek(max(0, size - _SHOWN * _BYTES_PER_CHARACTER))
    text = complaints.read().decode(errors="replace").strip()
    return f": {text[-_SHOWN:]}" if text else ""
