# SPDX-License-Identifier: Apache-2.0
# Rows of vhci status texts, in C without Python. Sources: drivers/usb/usbip/vhci_sysfs.c of 4.9,
# 4.14 and 6.12, drivers/staging/usbip/vhci_sysfs.c of 3.16.
# Every reader takes [at, end) and checks it before it looks; every loop moves `at` forward.
from libc.stdint cimport int32_t, uint8_t, uint32_t, uint64_t

cimport usbdra._native.libc as libc
from usbdra._native.debug cimport check
from usbdra._native.words cimport (
    MAX_WORDS, Text, Word, all_in, bytes_before, decimal, digits, eight, hex_digits, hexadecimal,
    line_end, says, split, upto
)

cdef enum:
    MAX_PORTS = 4096
    SEEN_WORDS = 64  # one bit a port; written out since Cython copies `//` into C array sizes
    BUSID_ROOM = 32  # BUSID_SIZE of include/uapi/linux/usbip.h, its zero byte included
    EXCERPT = 120
    ROW_ROOM = 41  # 33 bytes of columns, and eight that hold the bus id and its line feed

cdef extern from *:  # texts of a row as `eight` reads them: the first byte is the lowest
    """
    #define ROW_HIGH UINT32_C(0x20207368)  /* "hs  " */
    #define ROW_SUPER UINT32_C(0x20207373)  /* "ss  " */
    #define ROW_NO_DEVICE UINT32_C(0x0a302d30)  /* "0-0" and its line feed */
    #define ROW_STATUS UINT64_C(0x3030302034303020)  /* " 00s 00d": s is 4 to 7, d 0 to 7 */
    #define ROW_STATUS_MASK UINT64_C(0xf8fffffffcffffff)
    """
    const uint32_t ROW_HIGH
    const uint32_t ROW_SUPER
    const uint32_t ROW_NO_DEVICE
    const uint64_t ROW_STATUS
    const uint64_t ROW_STATUS_MASK

cdef enum HubCode:
    ANY_HUB = 0
    HIGH_HUB = 1
    SUPER_HUB = 2

cdef enum StateCode:  # usbip_common.h enum usbip_device_status
    FREE = 4
    ATTACHING = 5
    USED = 6
    FAILED = 7

cdef enum FaultCode:  # negative, apart from -errno by size
    NOT_A_HEADER = -10001
    NOT_A_ROW = -10002
    PORT_TWICE = -10003
    PORT_TOO_HIGH = -10004

cdef struct Entry:
    uint64_t socket
    uint32_t port
    uint32_t speed
    uint32_t devid
    int32_t controller
    uint8_t hub
    uint8_t state
    uint8_t no_socket
    uint8_t busid_size
    char busid[BUSID_ROOM]

cdef struct Layout:
    bint has_hub
    bint bus_apart  # `bus dev` in the header; rows in use still join them
    bint pointer  # the socket column is a kernel address in hex, else a descriptor number

cdef struct Entries:
    Entry* items
    Py_ssize_t count
    Py_ssize_t room
    uint64_t seen[SEEN_WORDS]

cdef struct Fault:
    int32_t controller
    uint32_t port
    size_t header_size
    size_t row_size
    char header[EXCERPT]
    char row[EXCERPT]


cdef inline bint busid(const Word* word, Entry* entry) noexcept nogil:
    """Digits, dots and dashes from a digit on; `0-0` and `(null)` say there is no device."""
    cdef size_t index
    cdef unsigned char byte
    entry.busid_size = 0
    if says(word, b"0-0") or says(word, b"(null)"):
        return True
    if word.size >= BUSID_ROOM or not c'0' <= word.at[0] <= c'9':
        return False
    for index in range(word.size):
        byte = word.at[index]
        if not (c'0' <= byte <= c'9' or byte == c'.' or byte == c'-'):
            return False
        entry.busid[index] = <char>byte
    entry.busid_size = <uint8_t>word.size
    return True


cdef inline bint socket(const Word* word, bint pointer, Entry* entry) noexcept nogil:
    """The socket column. A port that gave its socket up shows (u32)-1, or a null pointer."""
    entry.no_socket = False
    if not pointer:
        if not decimal(word, &entry.socket):
            return False
        entry.no_socket = entry.socket == 0xffffffffU
        return True
    if says(word, b"(null)"):
        entry.socket = 0
        entry.no_socket = True
        return True
    return hexadecimal(word, 0xffffffffffffffffU, &entry.socket)


cdef inline bint device(
    const Word* words, bint bus_apart, Entry* entry
) noexcept nogil:
    """`dev` as eight hex digits, or `bus dev` as two decimal numbers of 16 bits."""
    cdef uint64_t number = 0
    cdef uint64_t bus = 0
    if not bus_apart:
        if not hexadecimal(words, 0xffffffffU, &number):
            return False
    else:
        if not decimal(words, &bus) or not decimal(words + 1, &number):
            return False
        if bus > 0xffff or number > 0xffff:
            return False
    entry.devid = <uint32_t>(bus << 16 | number)
    return True


cdef inline bint header(Text at, Text end, Layout* layout) noexcept nogil:
    """`[hub] port|prt sta spd [bus] dev socket|sockfd local_busid`, all and nothing else.

    Columns are told apart one by one since stable kernels mix them: the fix of CVE-2017-16911
    brought the `sockfd` column of 4.15 to older layouts.
    """
    cdef Word words[MAX_WORDS]
    cdef Py_ssize_t count = split(at, end, words)
    cdef Py_ssize_t next = 0
    if count < 6 or count > MAX_WORDS:
        return False
    layout.has_hub = says(&words[0], b"hub")
    next += layout.has_hub
    if not says(&words[next], b"port") and not says(&words[next], b"prt"):
        return False
    if not says(&words[next + 1], b"sta") or not says(&words[next + 2], b"spd"):
        return False
    next += 3
    layout.bus_apart = says(&words[next], b"bus")
    next += layout.bus_apart
    if count != next + 3 or not says(&words[next], b"dev"):
        return False
    layout.pointer = says(&words[next + 1], b"socket")
    if not layout.pointer and not says(&words[next + 1], b"sockfd"):
        return False
    return says(&words[next + 2], b"local_busid")


cdef inline bint any_row(
    const Word* words, Py_ssize_t count, const Layout* layout, Entry* entry
) noexcept nogil:
    """A row of any known layout, word by word."""
    cdef Py_ssize_t next = 0
    cdef uint64_t port = 0
    cdef uint64_t state = 0
    cdef uint64_t speed = 0
    cdef bint apart
    entry.hub = ANY_HUB
    if layout.has_hub:
        if says(&words[0], b"hs"):
            entry.hub = HIGH_HUB
        elif says(&words[0], b"ss"):
            entry.hub = SUPER_HUB
        else:
            return False
        next = 1
    # Before 4.9 a row not in use has `bus dev` as two words, a row in use joins them.
    apart = layout.bus_apart and count == next + 7
    if not apart and count != next + 6:
        return False
    if (
        not decimal(&words[next], &port)
        or not decimal(&words[next + 1], &state)
        or not decimal(&words[next + 2], &speed)
        or not FREE <= state <= FAILED
        or not device(&words[next + 3], apart, entry)
        or not socket(&words[next + 4 + apart], layout.pointer, entry)
        or not busid(&words[next + 5 + apart], entry)
    ):
        return False
    entry.port = <uint32_t>port
    entry.state = <uint8_t>state
    entry.speed = <uint32_t>speed
    return True


cdef inline size_t short_busid(Text at, Entry* entry) noexcept nogil:
    """`busid` of at most seven characters, from eight bytes that hold it and its line feed: how
    many characters, or 0."""
    cdef uint64_t text = eight(at)
    cdef size_t size = bytes_before(text, c'\n')
    if size == 0 or size > 7 or not c'0' <= <unsigned char>text <= c'9':
        return 0
    if not all_in(upto(text, size, c'0'), c'-', c'9') or bytes_before(text, c'/') < size:
        return 0
    libc.memcpy(entry.busid, at, 8)  # what lies behind its size is no part of it
    entry.busid_size = 0 if <uint32_t>text == ROW_NO_DEVICE else <uint8_t>size
    return size


cdef inline size_t current_row(Text at, Text end, Entry* entry) noexcept nogil:
    """Fast path: a row exactly as a current kernel prints it, `%s  %04u %03u %03u %08x %06u %s`,
    eight bytes at a time and without a branch that depends on a digit. Bytes of the whole line
    with its line feed, or 0: then `any_row` decides."""
    cdef unsigned char last[ROW_ROOM]
    cdef size_t size = <size_t>(end - at)
    cdef uint64_t columns
    cdef uint64_t port
    cdef uint64_t devid
    if size < ROW_ROOM:  # the last row: the same bytes with zeros behind, which no column takes
        libc.memset(last, 0, ROW_ROOM)
        libc.memcpy(last, at, size)
        at = last
    columns = eight(at)
    if <uint32_t>columns == ROW_HIGH:
        entry.hub = HIGH_HUB
    elif <uint32_t>columns == ROW_SUPER:
        entry.hub = SUPER_HUB
    else:
        return 0
    if not digits(columns >> 32, 4, &port):
        return 0
    entry.port = <uint32_t>port
    entry.no_socket = False  # (u32)-1 has more than six digits
    if libc.memcmp(at + 8, b" 004 000 00000000 000000 0-0\n", 29) == 0:
        entry.state = FREE
        entry.speed = entry.devid = 0
        entry.socket = 0
        entry.busid_size = 0
        return 37
    columns = eight(at + 8)
    if columns & ROW_STATUS_MASK != ROW_STATUS:
        return 0
    entry.state = <uint8_t>(columns >> 24 & 7)
    entry.speed = <uint32_t>(columns >> 56 & 7)
    if at[16] != c' ' or at[25] != c' ' or at[32] != c' ':
        return 0
    if not hex_digits(eight(at + 17), &devid) or not digits(eight(at + 26), 6, &entry.socket):
        return 0
    size = short_busid(at + 33, entry)
    if size == 0:
        return 0
    entry.devid = <uint32_t>devid
    return 34 + size


cdef inline int reserve(Entries* entries) noexcept nogil:
    """Room for one more entry: 0 or -ENOMEM."""
    cdef Py_ssize_t room
    cdef void* area
    if entries.count < entries.room:
        return 0
    room = 256 if entries.room == 0 else entries.room * 2
    area = libc.realloc(entries.items, <size_t>room * sizeof(Entry))
    if area == NULL:
        return -libc.ENOMEM
    entries.items = <Entry*>area
    entries.room = room
    return 0


cdef inline int accept(Entries* entries) noexcept nogil:
    """Take the entry just written behind the last one: 0 or a FaultCode."""
    cdef uint32_t port = entries.items[entries.count].port
    cdef uint64_t bit
    check(entries.count < entries.room)
    if port >= MAX_PORTS:
        return PORT_TOO_HIGH
    bit = <uint64_t>1 << (port & 63)
    if entries.seen[port >> 6] & bit:
        return PORT_TWICE
    entries.seen[port >> 6] |= bit
    entries.count += 1
    return 0


cdef inline size_t excerpt(char* to, Text at, Text end) noexcept nogil:
    cdef size_t size = <size_t>(end - at)
    if size > EXCERPT:
        size = EXCERPT
    libc.memcpy(to, at, size)
    return size


cdef inline int add_text(
    Entries* entries, int32_t controller, Text at, size_t size, Fault* fault
) noexcept nogil:
    """Append the rows of one controller's text: 0, -ENOMEM, or a FaultCode with `fault` filled."""
    cdef Text end = at + size
    cdef Text stop = line_end(at, end)
    cdef Word words[MAX_WORDS]
    cdef Layout layout
    cdef Entry* entry
    cdef Py_ssize_t count
    cdef size_t taken
    cdef bint current
    cdef int error
    fault.controller = controller
    fault.row_size = 0
    fault.header_size = excerpt(fault.header, at, stop)
    if not header(at, stop, &layout):
        return NOT_A_HEADER
    current = layout.has_hub and not layout.bus_apart and not layout.pointer
    at = stop + 1
    while at < end:
        error = reserve(entries)
        if error < 0:
            return error
        entry = &entries.items[entries.count]
        entry.controller = controller
        taken = current_row(at, end, entry) if current else 0
        if taken > 0:
            stop = at + taken - 1
        else:
            stop = line_end(at, end)
            count = split(at, stop, words)
            if count == 0:
                at = stop + 1
                continue
            if count > MAX_WORDS or not any_row(words, count, &layout, entry):
                fault.row_size = excerpt(fault.row, at, stop)
                return NOT_A_ROW
        check(at <= stop <= end)
        error = accept(entries)
        if error < 0:
            fault.port = entry.port
            return error
        at = stop + 1
    return 0
