# SPDX-License-Identifier: Apache-2.0
# Words and numbers of kernel texts, in C without Python. A reader never looks at or behind `end`.
from libc.stdint cimport uint64_t

cimport usbdra._native.libc as libc

cdef enum:
    MAX_WORDS = 8

ctypedef const unsigned char* Text

cdef struct Word:
    Text at
    size_t size


cdef inline bint is_blank(unsigned char byte) noexcept nogil:
    return byte == c' ' or (byte < c' ' and (byte == c'\t' or 11 <= byte <= 13))


cdef inline Py_ssize_t split(Text at, Text end, Word* words) noexcept nogil:
    """Words of a line, at most MAX_WORDS; MAX_WORDS + 1 stands for more."""
    cdef Py_ssize_t count = 0
    cdef Text start
    while True:
        while at < end and is_blank(at[0]):
            at += 1
        if at >= end:
            return count
        if count == MAX_WORDS:
            return MAX_WORDS + 1
        start = at
        while at < end and not is_blank(at[0]):
            at += 1
        words[count].at = start
        words[count].size = <size_t>(at - start)
        count += 1


cdef inline bint says(const Word* word, const char* text) noexcept nogil:
    cdef size_t size = libc.strlen(text)  # the compiler knows: every text is a literal
    cdef size_t index
    if word.size != size:
        return False
    for index in range(size):  # words are short: faster than a call of memcmp
        if word.at[index] != <unsigned char>text[index]:
            return False
    return True


cdef inline bint decimal(const Word* word, uint64_t* value) noexcept nogil:
    """An unsigned 32-bit decimal number; leading zeros are fine."""
    cdef uint64_t sum = 0
    cdef size_t index
    cdef unsigned char digit
    for index in range(word.size):
        digit = <unsigned char>(word.at[index] - c'0')
        if digit > 9:
            return False
        sum = sum * 10 + digit
        if sum > 0xffffffffU:
            return False
    value[0] = sum
    return word.size > 0


cdef inline bint hexadecimal(const Word* word, uint64_t limit, uint64_t* value) noexcept nogil:
    """An unsigned hex number up to `limit`, which must be all ones."""
    cdef uint64_t sum = 0
    cdef size_t index
    cdef unsigned char byte
    cdef unsigned char digit
    for index in range(word.size):
        byte = word.at[index]
        digit = <unsigned char>(byte - c'0')
        if digit > 9:
            digit = <unsigned char>((byte | 0x20) - c'a')
            if digit > 5:
                return False
            digit += 10
        if sum > limit >> 4:
            return False
        sum = sum << 4 | digit
    value[0] = sum
    return word.size > 0


cdef inline Text line_end(Text at, Text end) noexcept nogil:
    cdef Text found = <Text>libc.memchr(at, c'\n', <size_t>(end - at))
    return end if found == NULL else found


# Eight bytes at a time. A text is a number whose lowest byte comes first, and each byte is judged
# in its own eight bits, so that what is in a column costs no branch: a processor that guesses
# wrong once a row takes as long for that as for the whole row.

cdef extern from *:
    """
    #define EVERY_BYTE(value) (UINT64_C(0x0101010101010101) * (value))
    """
    uint64_t every "EVERY_BYTE"(unsigned char value) nogil


cdef inline uint64_t eight(Text at) noexcept nogil:
    """The eight bytes from `at` on, which must be there."""
    cdef uint64_t text
    libc.memcpy(&text, at, 8)
    return libc.le64toh(text)


cdef inline bint all_in(uint64_t text, unsigned char least, unsigned char most) noexcept nogil:
    """Is every byte from `least` to `most`, both below 0x80?"""
    cdef uint64_t low = (text | every(0x80)) - every(least)  # borrows nothing from the next byte
    cdef uint64_t high = (text & ~every(0x80)) + every(0x7f - most)
    return (low & ~high & ~text & every(0x80)) == every(0x80)


cdef inline size_t bytes_before(uint64_t text, unsigned char stop) noexcept nogil:
    """How many bytes come before the first `stop`; 8 when there is none."""
    cdef uint64_t other = text ^ every(stop)
    # Bytes behind the first one may be marked wrongly: the subtraction borrows from them.
    cdef uint64_t found = (other - every(1)) & ~other & every(0x80)
    return 8 if found == 0 else <size_t>libc.trailing_zeros(found) >> 3


cdef inline uint64_t upto(uint64_t text, size_t size, unsigned char fill) noexcept nogil:
    """The first `size` bytes, 1 to 8, and `fill` in the place of the others."""
    cdef uint64_t kept = ~<uint64_t>0 >> (64 - 8 * size)
    return (text & kept) | (every(fill) & ~kept)


cdef inline bint digits(uint64_t text, size_t size, uint64_t* value) noexcept nogil:
    """The first `size` bytes, 1 to 8, as a decimal number."""
    cdef uint64_t pairs = text << (64 - 8 * size)
    if size < 8:
        pairs |= every(c'0') >> 8 * size
    if not all_in(pairs, c'0', c'9'):
        return False
    pairs -= every(c'0')
    pairs = pairs * 10 + (pairs >> 8)  # in every second byte: two digits
    value[0] = (
        (pairs & 0x000000ff000000ffU) * 0x000f424000000064U  # 1000000 << 32 | 100
        + (pairs >> 16 & 0x000000ff000000ffU) * 0x0000271000000001U  # 10000 << 32 | 1
    ) >> 32
    return True


cdef inline bint hex_digits(uint64_t text, uint64_t* value) noexcept nogil:
    """Eight hex digits as the kernel prints them, in lower case."""
    cdef uint64_t letters = text >> 6 & every(1)
    cdef uint64_t low = text & every(0x0f)
    cdef uint64_t sum
    if (text & every(0xf0)) != every(c'0') + letters * 0x30:
        return False
    # A digit's low half is 0 to 9, a letter's 1 to 6: each sum carries into bit 4 if it is more.
    if ((low + every(6) + letters * 3) | (letters << 4 & ~(low + every(0x0f)))) & every(0x10):
        return False
    sum = low + letters * 9
    sum = (sum << 4 | sum >> 8) & 0x00ff00ff00ff00ffU
    sum = (sum << 8 | sum >> 16) & 0x0000ffff0000ffffU
    value[0] = (sum << 16 | sum >> 32) & 0xffffffffU
    return True
