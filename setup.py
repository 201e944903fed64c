# SPDX-License-Identifier: Apache-2.0
"""Builds the extension modules; everything else is in pyproject.toml.

USBDRA_BUILD chooses the mode: release (default), debug (fd counters, line tracing), asan
(address and undefined-behaviour sanitizers), coverage.
"""

import os
from glob import glob

from Cython.Build import cythonize
from setuptools import Extension, setup

# Without -fno-sanitize-recover an undefined operation would only be printed.
SANITIZERS = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all"]
MODES: dict[str, tuple[list[str], list[str]]] = {
    "release": (["-O2", "-g0"], []),
    "debug": (["-O0", "-g", "-DUSBDRA_DEBUG=1", "-DCYTHON_TRACE=1"], []),
    "asan": (
        ["-O1", "-g", "-DUSBDRA_DEBUG=1", "-fno-omit-frame-pointer", *SANITIZERS],
        SANITIZERS,
    ),
    "coverage": (["-O0", "-g", "--coverage", "-DUSBDRA_DEBUG=1"], ["--coverage"]),
}
MODULES = ("sysfs", "vhci", "stub", "sockfd", "ktls", "bpf")
SOURCES = sorted(glob("usbdra/_native/*.p[yx][xd]"))
WARNINGS = ["-Wall", "-Wextra", "-Wsign-compare", "-Wconversion", "-Wno-unused-parameter"]

mode = os.environ.get("USBDRA_BUILD", "release")
if mode not in MODES:
    raise SystemExit(f"USBDRA_BUILD={mode}: use one of {', '.join(MODES)}")
compile_args, link_args = MODES[mode]

setup(
    ext_modules=cythonize(
        [
            Extension(
                f"usbdra._native.{name}",
                [f"usbdra/_native/{name}.pyx"],
                depends=SOURCES,  # so that a source distribution has them all
                extra_compile_args=[*compile_args, *WARNINGS],
                extra_link_args=link_args,
            )
            for name in MODULES
        ],
        # Beside the build, not beside the source: each mode makes its own C.
        build_dir=f"build/{mode}/c",
        emit_linenums=mode != "release",
        compiler_directives={
            "language_level": 3,
            "linetrace": mode == "debug",
            "autotestdict": False,
        },
    )
)
