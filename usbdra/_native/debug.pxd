# SPDX-License-Identifier: Apache-2.0
# Checks that exist only in builds with USBDRA_DEBUG (setup.py): a broken promise inside the C
# code ends the process at once, with the place, since going on would be a memory error later.
cdef extern from *:
    """
    #ifdef USBDRA_DEBUG
    #include <stdio.h>
    #include <stdlib.h>
    #define USBDRA_COUNTERS 1
    #define usbdra_check(promise) \\
        do { \\
            if (!(promise)) { \\
                fprintf(stderr, "%s:%d: broken promise: %s\\n", __FILE__, __LINE__, #promise); \\
                abort(); \\
            } \\
        } while (0)
    #else
    #define USBDRA_COUNTERS 0
    #define usbdra_check(promise) ((void)0)
    #endif
    """
    const bint COUNTERS "USBDRA_COUNTERS"
    void check "usbdra_check" (bint promise) noexcept nogil
