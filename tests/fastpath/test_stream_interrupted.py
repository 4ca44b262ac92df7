"""Ctrl-C at any line of taking a batch: nobody waits for ever, and the stream goes on from its position."""

import contextlib
import linecache
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

import fastpath
from fastpath import BatchStream, SampleStore
from tests.fastpath.stored import row_store

HERE = str(Path(fastpath.__file__).parent)


@pytest.fixture(scope="module")
def rows(tmp_path_factory: pytest.TempPathFactory) -> tuple[SampleStore, np.ndarray]:
    return row_store(tmp_path_factory.mktemp("rows"))


class InterruptAt:
    """Raises KeyboardInterrupt at the n-th line of fastpath that this thread comes to."""

    def __init__(self, line: int) -> None:
        self.left = line

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        if not frame.f_code.co_filename.startswith(HERE):
            return None
        # A `with` comes up again when its block is over. Python takes interrupts before that and after, never between.
        if event == "line" and not linecache.getline(frame.f_code.co_filename, frame.f_lineno).lstrip().startswith("with "):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt
        return self

    def next(self, iterator: Iterator[Any]) -> Any:
        before = sys.gettrace()
        sys.settrace(self)
        try:
            return next(iterator)
        finally:
            sys.settrace(before)


def ends(iterator: Iterator[Any]) -> bool:
    """True if asking for another batch comes to an end, whichever it is."""

    def ask() -> None:
        with contextlib.suppress(RuntimeError, StopIteration):
            next(iterator)

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(20)
    return not asking.is_alive()


@pytest.mark.parametrize("prefetch", [0, 2])
def test_after_an_interrupt_at_any_line_nobody_waits_and_the_stream_goes_on_from_its_position(rows, prefetch):
    store, keys = rows
    batches = [batch.keys.tolist() for batch in BatchStream(store, keys, 300)]
    line, untouched, positions = 1, 0, set()
    # Taking a batch that is not there yet has more lines than taking one that is.
    while untouched < 20:
        stream = BatchStream(store, keys, 300, prefetch=prefetch)
        iterator = iter(stream)
        assert next(iterator).keys.tolist() == batches[0]
        tracer = InterruptAt(line)
        try:
            tracer.next(iterator)
        except KeyboardInterrupt:
            # The next batch, or the end of this iteration.
            positions.add(stream.state_dict()["position"])
            assert ends(iterator), line
        untouched = 0 if tracer.left <= 0 else untouched + 1
        at = stream.state_dict()["position"]
        assert [batch.keys.tolist() for batch in stream] == batches[at:], line
        line += 1
    assert line > 30
    # Which is the last line differs where others make batches meanwhile.
    assert positions == {1, 2} or (prefetch and positions == {1})
