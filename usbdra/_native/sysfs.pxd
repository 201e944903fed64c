# SPDX-License-Identifier: Apache-2.0
cdef ssize_t read_file(int dir_fd, const char* path, char* to, size_t limit) noexcept nogil
cdef int write_once(const char* path, const char* data, size_t size) noexcept nogil
cdef int store(str operation, bytes path, bytes data) except -1
