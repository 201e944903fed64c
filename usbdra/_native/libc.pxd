# SPDX-License-Identifier: Apache-2.0
# What the native core needs of libc and Linux. Declarations only, no code.
from libc.stdint cimport uint16_t, uint32_t, uint64_t

cdef extern from "<errno.h>" nogil:
    int errno
    const int EAGAIN
    const int EBADF
    const int EBUSY
    const int EFBIG
    const int EINTR
    const int EIO
    const int EMSGSIZE
    const int ENAMETOOLONG
    const int ENOMEM
    const int ENOPROTOOPT
    const int ENOTCONN
    const int EOPNOTSUPP
    const int EPERM
    const int EAFNOSUPPORT

cdef extern from "<string.h>" nogil:
    char* strerror(int number)
    void* memchr(const void* area, int byte, size_t size)
    int memcmp(const void* a, const void* b, size_t size)
    void* memcpy(void* to, const void* source, size_t size)
    void* memset(void* area, int byte, size_t size)
    size_t strlen(const char* text)
    void explicit_bzero(void* area, size_t size)

cdef extern from "<stdio.h>" nogil:
    int snprintf(char* to, size_t size, const char* form, ...)

cdef extern from "<stdlib.h>" nogil:
    void* realloc(void* area, size_t size)
    void free(void* area)

cdef extern from "<endian.h>" nogil:
    uint64_t le64toh(uint64_t number)

cdef extern from * nogil:  # of the compiler, gcc and clang
    int trailing_zeros "__builtin_ctzll"(unsigned long long number)

cdef extern from "<fcntl.h>" nogil:
    const int AT_FDCWD
    const int O_CLOEXEC
    const int O_NOCTTY
    const int O_RDONLY
    const int O_WRONLY
    int openat(int dir_fd, const char* path, int flags)

cdef extern from "<unistd.h>" nogil:
    ssize_t read(int fd, void* area, size_t size)
    ssize_t write(int fd, const void* area, size_t size)
    int close(int fd)

cdef extern from "<sys/uio.h>" nogil:
    struct iovec:
        void* iov_base
        size_t iov_len

cdef extern from "<sys/socket.h>" nogil:
    ctypedef unsigned int socklen_t
    struct msghdr:
        iovec* msg_iov
        size_t msg_iovlen
        void* msg_control
        size_t msg_controllen
        int msg_flags
    struct cmsghdr:
        size_t cmsg_len
        int cmsg_level
        int cmsg_type
    struct ucred:
        int pid
        unsigned int uid
        unsigned int gid
    const int AF_UNIX
    const int MSG_CMSG_CLOEXEC
    const int MSG_CTRUNC
    const int MSG_NOSIGNAL
    const int MSG_TRUNC
    const int SCM_RIGHTS
    const int SOL_SOCKET
    const int SO_DOMAIN
    const int SO_PEERCRED
    cmsghdr* CMSG_FIRSTHDR(msghdr* message)
    cmsghdr* CMSG_NXTHDR(msghdr* message, cmsghdr* header)
    unsigned char* CMSG_DATA(cmsghdr* header)
    size_t CMSG_LEN(size_t size)
    size_t CMSG_SPACE(size_t size)
    ssize_t sendmsg(int sock, const msghdr* message, int flags)
    ssize_t recvmsg(int sock, msghdr* message, int flags)
    int getsockopt(int sock, int level, int name, void* value, socklen_t* size)
    int setsockopt(int sock, int level, int name, const void* value, socklen_t size)
