"""Parsers of a project's own, per batch and per sample, in threads and in processes."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

from modyn_dagster.distributed.children import end_all
from modyn_dagster.errors import BadSample, ConfigError, TrainingError, WrongShape
from modyn_dagster.keys import key_of, keys_of
from modyn_dagster.spec.learning.parsing import ParserSpec
from modyn_dagster.training.parsing.function import ThreadedParts
from modyn_dagster.training.parsing.parser import Parsing

BLOBS = [b"1.5,2", b"3,4", b"5,6", b"7,8", b"9,10"]
KEYS = keys_of(2, np.arange(5))
ANYWHERE = [("threads", 1), ("threads", 3), ("processes", 1), ("processes", 2)]


@dataclass(frozen=True)
class Place:
    dataset: str
    path: str
    offset: int


@pytest.fixture(params=ANYWHERE, ids=lambda param: f"{param[1]} {param[0]}")
def workers(request: pytest.FixtureRequest) -> dict[str, Any]:
    return {"kind": request.param[0], "count": request.param[1]}


@pytest.fixture(autouse=True)
def _no_process_is_left() -> Iterator[None]:
    yield
    left = [child for child in psutil.Process().children() if "parsing.worker" in " ".join(child.cmdline())]
    assert left == []


def parsing_of(function: str, per: str = "batch", workers: dict[str, Any] | None = None) -> "closing[Parsing]":
    spec = ParserSpec.model_validate({"function": function, "per": per, "workers": workers or {}})
    return closing(Parsing(spec, "pipeline p", lambda key: Place("shop", "shards/2.bin", 10 * (key - key_of(2, 0)))))


@pytest.mark.process
def test_a_batch_parser_makes_the_same_columns_wherever_it_runs(parsers: str, workers: dict[str, Any]) -> None:
    with parsing_of(f"{parsers}:two_numbers", workers=workers) as parse:
        columns = parse.of_blobs(KEYS, BLOBS)
    assert columns["left"].tolist() == [1.5, 3, 5, 7, 9]
    assert columns["right"].tolist() == [2, 4, 6, 8, 10]


@pytest.mark.process
def test_what_a_sample_parser_returns_is_stacked(parsers: str, workers: dict[str, Any]) -> None:
    with parsing_of(f"{parsers}:one_number", "sample", workers) as parse:
        columns = parse.of_blobs(KEYS, [b"1", b"2.5", b"3", b"4", b"55"])
    assert columns["left"].dtype == np.float64
    assert columns["left"].tolist() == [1, 2.5, 3, 4, 55]
    assert columns["digits"].tolist() == [1, 3, 1, 1, 2]


@pytest.mark.process
def test_arrays_keep_their_shape_and_dtype_and_user_code_may_print(parsers: str, workers: dict[str, Any]) -> None:
    with parsing_of(f"{parsers}:tiny_image", "sample", workers) as parse:
        images = parse.of_blobs(KEYS, [bytes(range(i, i + 4)) for i in range(5)])["features"]
    assert images.dtype == np.uint8
    assert images.tolist() == [[[i, i + 1], [i + 2, i + 3]] for i in range(5)]


@pytest.mark.process
@pytest.mark.parametrize(("function", "per"), [("two_numbers", "batch"), ("one_number", "sample")])
def test_the_first_sample_that_cannot_be_parsed_is_named_with_its_place(
    parsers: str, workers: dict[str, Any], function: str, per: str
) -> None:
    blobs = [b"1", b"2", b"x", b"4", b"y"] if per == "sample" else [b"1,1", b"2,2", b"x", b"4,4", b"y,y"]
    with parsing_of(f"{parsers}:{function}", per, workers) as parse:
        with pytest.raises(BadSample, match=rf"{function} failed on the sample with key {KEYS[2]} of dataset shop") as caught:
            parse.of_blobs(KEYS, blobs)
        found = caught.value
        assert (found.key, found.dataset, found.path, found.offset) == (KEYS[2], "shop", "shards/2.bin", 20)
        assert "ValueError: could not convert string to float" in found.reason
        assert parse.of_blobs(KEYS[:1], blobs[:1])["left"].tolist() == [1]


@pytest.mark.process
@pytest.mark.parametrize(("last", "ending"), [(b"exit", "ended with status 3"), (b"kill", "was killed by signal 9")])
def test_a_sample_that_ends_the_process_is_named_and_the_next_call_has_a_new_one(parsers: str, last: bytes, ending: str) -> None:
    with parsing_of(f"{parsers}:tiny_image", "sample", {"kind": "processes", "count": 2}) as parse:
        with pytest.raises(BadSample, match=rf"key {KEYS[4]} .*: its process {ending}"):
            parse.of_blobs(KEYS, [b"abcd"] * 4 + [last])
        assert len(parse.of_blobs(KEYS, [b"abcd"] * 5)["features"]) == 5


@pytest.mark.process
def test_closing_ends_a_parser_that_is_at_work(parsers: str) -> None:
    failed: list[Exception] = []

    def work() -> None:
        try:
            parse.of_blobs(KEYS[:1], [b"wait"])
        except TrainingError as error:
            failed.append(error)

    with parsing_of(f"{parsers}:tiny_image", "sample", {"kind": "processes"}) as parse:
        parse.of_blobs(KEYS[:1], [b"abcd"])
        thread = threading.Thread(target=work)
        thread.start()
        time.sleep(0.2)
        begin = time.monotonic()
    thread.join()
    assert time.monotonic() - begin < 1
    assert len(failed) == 1


def test_a_parser_that_fails_on_many_samples_but_on_none_alone_says_so(parsers: str) -> None:
    with (
        parsing_of(f"{parsers}:together_only") as parse,
        pytest.raises(TrainingError, match=r"with 5 samples from key \d+ on together, with none of them alone"),
    ):
        parse.of_blobs(KEYS, BLOBS)


@pytest.mark.process
def test_what_is_no_dict_of_arrays_is_refused(parsers: str, workers: dict[str, Any]) -> None:
    with (
        parsing_of(f"{parsers}:a_list", workers=workers) as parse,
        pytest.raises(ConfigError, match="must return a dict of arrays, not list"),
    ):
        parse.of_blobs(KEYS, BLOBS)


@pytest.mark.process
def test_objects_do_not_leave_a_process(parsers: str) -> None:
    with (
        parsing_of(f"{parsers}:strings", workers={"kind": "processes"}) as parse,
        pytest.raises(ConfigError, match="'left' has dtype object"),
    ):
        parse.of_blobs(KEYS, BLOBS)


def test_an_array_of_another_length_is_refused(parsers: str) -> None:
    with (
        parsing_of(f"{parsers}:one_too_few") as parse,
        pytest.raises(WrongShape, match=r"array 'left', returned shape \(4,\), expected \(5, ...\)"),
    ):
        parse.of_blobs(KEYS, BLOBS)


@pytest.mark.process
def test_a_process_that_cannot_import_the_parser_says_so(parsers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with parsing_of(f"{parsers}:images", workers={"kind": "processes"}) as parse:
        monkeypatch.setattr(sys, "path", [path for path in sys.path if not path.endswith("tests/training")])
        with pytest.raises(TrainingError, match="cannot run in a process of its own: its process ended with status 1"):
            parse.of_blobs(KEYS, [b"abcd"] * 5)


@pytest.mark.process
def test_processes_end_with_the_process_that_started_them(parsers: str) -> None:
    code = f"""
import os, psutil, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
import numpy as np
from modyn_dagster.spec.learning.parsing import ParserSpec
from modyn_dagster.training.parsing.parser import Parsing
parse = Parsing(ParserSpec.model_validate({{"function": "{parsers}:images", "workers": {{"kind": "processes"}}}}), "p")
parse.of_blobs(np.arange(1, dtype=np.uint64), [b"abcd"])
print(psutil.Process().children()[0].pid, flush=True)
os.kill(os.getpid(), 9)
"""
    died = subprocess.run([sys.executable, "-c", code], cwd=Path(__file__).parents[2], capture_output=True, check=False)
    assert died.returncode == -9, died.stderr
    worker = int(died.stdout)
    deadline = time.monotonic() + 5
    while psutil.pid_exists(worker) and psutil.Process(worker).status() != psutil.STATUS_ZOMBIE:
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.process
@pytest.mark.parametrize(
    ("function", "per", "blobs", "reason"),
    [
        ("lists", "batch", [b"1,2", b"3,4", b"6,7", b"5"], r"'left' has shape \(1,\), that of the samples before it has \(2,\)"),
        ("ragged", "sample", [b"1", b"1", b"1", b"2"], "inhomogeneous"),
        (
            "time_or_number",
            "sample",
            [b"1", b"2", b"3", b"time"],
            "'left' is datetime64.*, that of the samples before it is float64",
        ),
    ],
)
def test_a_sample_whose_values_make_no_array_with_the_others_is_named(
    parsers: str, workers: dict[str, Any], function: str, per: str, blobs: list[bytes], reason: str
) -> None:
    with parsing_of(f"{parsers}:{function}", per, workers) as parse, pytest.raises(BadSample, match=reason) as caught:
        parse.of_blobs(KEYS[:4], blobs)
    assert caught.value.key == KEYS[3]


@pytest.mark.process
def test_threads_are_started_again_in_a_forked_process() -> None:
    with closing(ThreadedParts(2)) as pieces:
        assert pieces(4, lambda start, stop: stop - start) == [2, 2]
        child = os.fork()
        if child == 0:
            signal.alarm(10)
            found = pieces(4, lambda start, stop: stop - start)
            pieces.close()
            os._exit(0 if found == [2, 2] else 1)
        assert os.waitpid(child, 0)[1] == 0


def test_all_processes_end_though_threads_take_theirs_off_the_list_meanwhile() -> None:
    class Ending:
        """Kills itself off the list, as the thread does whose process ends."""

        stdin = stdout = None
        waited = False

        def kill(self) -> None:
            listed.remove(self)

        def wait(self) -> None:
            self.waited = True

    listed = [Ending() for _ in range(4)]
    every = list(listed)
    end_all(listed, os.getpid())  # type: ignore[arg-type]  # has what is used of a process
    assert all(process.waited for process in every)
