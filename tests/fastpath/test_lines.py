import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fastpath.arrays.lines import find_lines
from fastpath.kernels._scan import contains

#: Enough of what matters for two blocks of 64 bytes, and of what does not.
TEXTS = st.lists(
    st.sampled_from([b'"', b'""', b",", b"\n", b"\r\n", b"\r", b"a", b";", b"\xc3\xa9", b"x" * 61, b"\0"]), max_size=40
)


def lines_by_hand(text: bytes, start: int, quoted: bool) -> list[tuple[int, int]]:
    """Byte after byte: offset and length of lines that are not empty."""
    found, line, inside = [], start, False
    for at in range(start, len(text)):
        inside ^= quoted and text[at] == ord('"')
        if text[at] in b"\r\n" and not inside:
            found.append((line, at - line))
            line = at + 1
    return [(offset, length) for offset, length in [*found, (line, len(text) - line)] if length]


def quotes_by_hand(text: bytes, start: int, delimiter: str) -> tuple[int | None, int | None]:
    """The first quote with a wrong neighbour, and the last one where their number is odd."""
    quotes = [at for at in range(start, len(text)) if text[at] == ord('"')]
    border = delimiter.encode() + b"\r\n"
    bad = None
    for i, at in enumerate(quotes):
        if i % 2 == 0:
            fits = at == start or text[at - 1] in border or (i > 0 and quotes[i - 1] == at - 1)
        else:
            fits = at == len(text) - 1 or text[at + 1] in border or (i + 1 < len(quotes) and quotes[i + 1] == at + 1)
        if not fits and bad is None:
            bad = at
    return bad, quotes[-1] if len(quotes) % 2 else None


@given(TEXTS.map(b"".join), st.integers(0, 3), st.sampled_from([None, ",", ";", "\t"]))
@example(b"x" * 63 + b'"\n"' + b"y" * 62 + b"\r\n", 0, ",")
@example(b"x" * 64, 0, None)
@example(b'"' + b"\n" * 200, 0, ",")
def test_lines_and_quotes_are_those_found_byte_by_byte(text: bytes, start: int, delimiter: str | None) -> None:
    start = min(start, len(text))
    found = find_lines(np.frombuffer(text, dtype=np.uint8), start, delimiter)
    assert list(zip(found.offsets.tolist(), found.lengths.tolist())) == lines_by_hand(text, start, delimiter is not None)
    expected = (None, None) if delimiter is None else quotes_by_hand(text, start, delimiter)
    assert (found.bad_quote, found.unclosed_quote) == expected


def test_many_empty_lines_leave_no_memory_behind() -> None:
    found = find_lines(np.full(100_000, ord("\n"), dtype=np.uint8))
    assert len(found.offsets) == 0
    assert found.offsets.base is None


@given(st.binary(max_size=200), st.integers(0, 255))
def test_a_byte_is_found_wherever_it_stands(data: bytes, byte: int) -> None:
    assert contains(np.frombuffer(data, dtype=np.uint8), byte) == (byte in data)


@pytest.mark.parametrize(("start", "delimiter"), [(-1, None), (4, None), (0, "é"), (0, ""), (0, ",,")])
def test_what_cannot_be_is_refused(start: int, delimiter: str | None) -> None:
    with pytest.raises(ValueError, match="must be"):
        find_lines(np.zeros(3, dtype=np.uint8), start, delimiter)
