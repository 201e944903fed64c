# SPDX-License-Identifier: Apache-2.0
"""TLS in the kernel: give a connected TCP socket its TLS 1.3 keys, one direction at a time.

Owns the option calls and the wiping of what it copied. Must not do a handshake, derive keys or
load modules. Layout: include/uapi/linux/tls.h; behaviour: net/tls/tls_main.c.
"""

from libc.stdint cimport uint16_t

cimport usbdra._native.libc as libc
from usbdra._native.debug cimport check
from usbdra._native.oserror cimport raise_fd

cdef enum:
    # Own numbers: libc headers of older build machines have neither.
    SOL_TCP_ = 6
    SOL_TLS_ = 282
    TCP_ULP_ = 31
    TLS_TX_ = 1
    TLS_RX_ = 2
    TLS_1_3_VERSION = 0x0304
    CIPHER_AES_GCM_128 = 51
    CIPHER_AES_GCM_256 = 52
    IV_SIZE = 12  # of a TLS record: 4 bytes of salt, then 8 of the kernel's `iv`
    SALT_SIZE = 4
    SEQUENCE_SIZE = 8
    INFO_LIMIT = 56  # struct tls12_crypto_info_aes_gcm_256

TX = TLS_TX_
RX = TLS_RX_
AES_128_GCM = CIPHER_AES_GCM_128
AES_256_GCM = CIPHER_AES_GCM_256


cdef struct Header:
    uint16_t version
    uint16_t cipher


cdef int set_option(int sock, int level, int name, const void* value, size_t size) noexcept nogil:
    """setsockopt(2): 0 or -errno."""
    while libc.setsockopt(sock, level, name, value, <libc.socklen_t>size) != 0:
        if libc.errno != libc.EINTR:
            return -libc.errno
    return 0


cdef int get_option(int sock, int level, int name, void* value, size_t size) noexcept nogil:
    """getsockopt(2) of a value of known size: 0 or -errno."""
    cdef libc.socklen_t room = <libc.socklen_t>size
    while libc.getsockopt(sock, level, name, value, &room) != 0:
        if libc.errno != libc.EINTR:
            return -libc.errno
    return 0


cdef size_t lay_out(
    unsigned char* to, int cipher, const unsigned char* key, size_t key_size,
    const unsigned char* iv, unsigned long long rec_seq
) noexcept nogil:
    """Fill a tls12_crypto_info_aes_gcm_{128,256}: version, cipher, iv, key, salt, rec_seq."""
    cdef Header header
    cdef size_t at = sizeof(Header)
    cdef int byte
    header.version = TLS_1_3_VERSION
    header.cipher = <uint16_t>cipher
    libc.memcpy(to, &header, sizeof(Header))
    libc.memcpy(to + at, iv + SALT_SIZE, IV_SIZE - SALT_SIZE)
    at += IV_SIZE - SALT_SIZE
    libc.memcpy(to + at, key, key_size)
    at += key_size
    libc.memcpy(to + at, iv, SALT_SIZE)
    at += SALT_SIZE
    for byte in range(SEQUENCE_SIZE):  # big endian, as on the wire
        to[at] = <unsigned char>((rec_seq >> (8 * (SEQUENCE_SIZE - 1 - byte))) & 0xff)
        at += 1
    check(at <= INFO_LIMIT)
    return at


cdef int checked_direction(int direction) except -1:
    if direction != TLS_TX_ and direction != TLS_RX_:
        raise ValueError(f"direction {direction} is neither TX nor RX")
    return direction


cdef int key_size_of(int cipher) except -1:
    if cipher == CIPHER_AES_GCM_128:
        return 16
    if cipher == CIPHER_AES_GCM_256:
        return 32
    raise ValueError(f"cipher {cipher} is neither AES_128_GCM nor AES_256_GCM")


def attach_ulp(int sock, /):
    """setsockopt(TCP_ULP, "tls"). Borrows sock. ENOENT: the kernel has no tls module loaded."""
    cdef int error
    with nogil:
        error = set_option(sock, SOL_TCP_, TCP_ULP_, b"tls", sizeof(b"tls"))
    if error < 0:
        raise_fd(-error, "attach_ulp", sock)


def set_keys(
    int sock, int direction, int cipher, bytes key not None, bytes iv not None,
    unsigned long long rec_seq=0, /
):
    """Give TLS 1.3 keys for one direction to the kernel. Borrows sock.

    key: 16 or 32 bytes by cipher; iv: the 12-byte record IV; rec_seq: number of the next record.
    Raises ValueError for wrong sizes, OSError from the kernel (EBUSY: keys are set already).
    """
    cdef int wanted = key_size_of(cipher)
    cdef unsigned char info[INFO_LIMIT]
    cdef const unsigned char* key_at = key
    cdef const unsigned char* iv_at = iv
    cdef size_t size
    cdef int error
    checked_direction(direction)
    if len(key) != wanted:
        raise ValueError(f"key has {len(key)} bytes, cipher {cipher} wants {wanted}")
    if len(iv) != IV_SIZE:
        raise ValueError(f"iv has {len(iv)} bytes, not {IV_SIZE}")
    with nogil:
        size = lay_out(info, cipher, key_at, <size_t>wanted, iv_at, rec_seq)
        error = set_option(sock, SOL_TLS_, direction, info, size)
        libc.explicit_bzero(info, sizeof(info))
    if error < 0:
        raise_fd(-error, "set_keys", sock)


def cipher_in_use(int sock, int direction, /):
    """The cipher the kernel holds for this direction (getsockopt), 0 when none is set."""
    cdef Header header
    cdef int error
    checked_direction(direction)
    with nogil:
        error = get_option(sock, SOL_TLS_, direction, &header, sizeof(Header))
    # EBUSY: the socket speaks TLS and has no keys yet. Plain TCP does not know the level at all:
    # EOPNOTSUPP over IPv4, ENOPROTOOPT over IPv6.
    if error == -libc.EBUSY or error == -libc.EOPNOTSUPP or error == -libc.ENOPROTOOPT:
        return 0
    if error < 0:
        raise_fd(-error, "cipher_in_use", sock)
    return header.cipher
