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


cdef inline Text word_end(Text at, Text end, unsigned char stop) noexcept nogil:
    """Where the byte `stop` is, at or after `at`; `end` when it is not there."""
    while at < end and at[0] != stop:
        at += 1
    return at


cdef inline Text line_end(Text at, Text end) noexcept nogil:
    cdef Text found = <Text>libc.memchr(at, c'\n', <size_t>(end - at))
    return end if found == NULL else found
