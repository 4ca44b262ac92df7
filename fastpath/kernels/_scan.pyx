# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False
"""Lines and quotes of text, 64 bytes at a time. ``fastpath.arrays.lines`` has checked the arguments."""

from libc.stdint cimport int64_t, uint8_t, uint64_t
from libc.string cimport memchr, memcpy, memset


cdef extern from *:
    """
    #if defined(__SSE2__)
    #include <emmintrin.h>
    /* Bit i: byte i of 64 is c. */
    static inline uint64_t equal64(const uint8_t* p, uint8_t c) {
        const __m128i wanted = _mm_set1_epi8((char)c);
        uint64_t found = 0;
        for (int i = 0; i < 4; i++) {
            __m128i same = _mm_cmpeq_epi8(_mm_loadu_si128((const __m128i*)(p + 16 * i)), wanted);
            found |= (uint64_t)(uint16_t)_mm_movemask_epi8(same) << (16 * i);
        }
        return found;
    }
    #else
    static inline uint64_t equal64(const uint8_t* p, uint8_t c) {
        uint64_t found = 0;
        for (int i = 0; i < 64; i++) found |= (uint64_t)(p[i] == c) << i;
        return found;
    }
    #endif
    /* Bit i: an odd number of the bits 0 .. i is set. */
    static inline uint64_t running_parity(uint64_t bits) {
        for (int shift = 1; shift < 64; shift *= 2) bits ^= bits << shift;
        return bits;
    }
    """
    uint64_t equal64(const uint8_t* p, uint8_t c) nogil
    uint64_t running_parity(uint64_t bits) nogil
    int ctz "__builtin_ctzll"(uint64_t bits) nogil
    int popcount "__builtin_popcountll"(uint64_t bits) nogil


cdef enum:
    BLOCK = 64
    NEWLINE = 10
    RETURN = 13
    QUOTE = 34


cdef struct Text:
    const uint8_t* data
    Py_ssize_t size
    Py_ssize_t start
    bint quoted             # whether quotes hide line breaks
    uint8_t delimiter       # may stand beside a quote


cdef struct Found:
    Py_ssize_t lines
    Py_ssize_t bad_quote    # position of the first misplaced quote, -1
    Py_ssize_t last_quote   # -1 where there is none
    bint is_open            # the last quote was never closed


cdef inline uint64_t _breaks(const uint8_t* block) noexcept nogil:
    return equal64(block, NEWLINE) | equal64(block, RETURN)


cdef const uint8_t* _block(const Text* text, Py_ssize_t base, uint8_t* last) noexcept nogil:
    # The bytes behind the end are nulls, which are neither breaks nor quotes.
    if text.size - base >= BLOCK:
        return text.data + base
    memset(last, 0, BLOCK)
    memcpy(last, text.data + base, <size_t>(text.size - base))
    return last


cdef Py_ssize_t _count_breaks(const Text* text) noexcept nogil:
    cdef uint8_t last[BLOCK]
    cdef Py_ssize_t base = text.start, count = 0
    while base < text.size:
        count += popcount(_breaks(_block(text, base, last)))
        base += BLOCK
    return count


cdef inline bint _is_border(const Text* text, uint8_t byte) noexcept nogil:
    return byte == text.delimiter or byte == NEWLINE or byte == RETURN


cdef inline bint _may_open(const Text* text, Py_ssize_t at, Py_ssize_t before) noexcept nogil:
    return at == text.start or before == at - 1 or _is_border(text, text.data[at - 1])


cdef inline bint _may_close(const Text* text, Py_ssize_t at) noexcept nogil:
    return at == text.size - 1 or text.data[at + 1] == QUOTE or _is_border(text, text.data[at + 1])


cdef inline void _check_quotes(const Text* text, Py_ssize_t base, uint64_t quotes, Found* found) noexcept nogil:
    # Quotes alternate between opening and closing ones; a doubled quote is a closing one and an opening one beside it.
    cdef Py_ssize_t at
    cdef bint fits
    while quotes:
        at = base + ctz(quotes)
        fits = _may_close(text, at) if found.is_open else _may_open(text, at, found.last_quote)
        if not fits and found.bad_quote < 0:
            found.bad_quote = at
        found.is_open = not found.is_open
        found.last_quote = at
        quotes &= quotes - 1


cdef Found _lines(const Text* text, int64_t* offsets, int64_t* lengths) noexcept nogil:
    cdef uint8_t last[BLOCK]
    cdef const uint8_t* block
    cdef uint64_t breaks, quotes, hidden = 0  # all bits set while a quote is open
    cdef Py_ssize_t base = text.start, line = text.start, at
    cdef Found found = Found(0, -1, -1, False)
    while base < text.size:
        block = _block(text, base, last)
        breaks = _breaks(block)
        quotes = equal64(block, QUOTE) if text.quoted else 0
        if quotes:
            _check_quotes(text, base, quotes, &found)
            hidden ^= running_parity(quotes)
            breaks &= ~hidden
            hidden = ~<uint64_t>0 if found.is_open else 0
        else:
            breaks &= ~hidden
        while breaks:
            at = base + ctz(breaks)
            if at > line:
                offsets[found.lines] = line
                lengths[found.lines] = at - line
                found.lines += 1
            line = at + 1
            breaks &= breaks - 1
        base += BLOCK
    if text.size > line:
        offsets[found.lines] = line
        lengths[found.lines] = text.size - line
        found.lines += 1
    return found


cdef Text _text(const uint8_t[::1] data, Py_ssize_t start, int delimiter) noexcept:
    cdef Text text = Text(NULL, data.shape[0], start, delimiter >= 0, <uint8_t>(delimiter & 0x7f))
    if text.size:
        text.data = &data[0]
    return text


def count_breaks(const uint8_t[::1] data, Py_ssize_t start):
    """Number of line feeds and carriage returns from ``start`` on."""
    cdef Text text = _text(data, start, -1)
    cdef Py_ssize_t count
    with nogil:
        count = _count_breaks(&text)
    return count


def find_lines(const uint8_t[::1] data, Py_ssize_t start, int delimiter, int64_t[::1] offsets, int64_t[::1] lengths):
    """Fill in places of lines; returns their number, the first misplaced quote, and the unclosed one (-1 for none).

    ``delimiter`` -1: quotes have no meaning. ``offsets`` and ``lengths`` have room for one line more than there are breaks.
    """
    cdef Text text = _text(data, start, delimiter)
    cdef Found found
    with nogil:
        found = _lines(&text, &offsets[0], &lengths[0])
    return found.lines, found.bad_quote, found.last_quote if found.is_open else -1


def contains(const uint8_t[::1] data, uint8_t byte):
    """True if a byte occurs."""
    cdef bint found = False
    if data.shape[0]:
        with nogil:
            found = memchr(&data[0], byte, <size_t>data.shape[0]) != NULL
    return found
