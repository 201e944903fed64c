#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# variant.sh MODE JUNIT: builds the extension in MODE (debug, asan) outside the tree and runs the
# unit tests on it, all but those of the benchmarks' reports. The whole package is copied, so the
# release build in the tree is not touched.
set -euo pipefail
mode=$1 junit=$2
python=$PWD/.venv/bin/python
lib=build/$mode/lib
rm -rf "$lib"
mkdir -p build
# One build at a time: setuptools writes its list of files into the tree.
USBDRA_BUILD=$mode flock build/variant.lock "$python" setup.py --quiet build --build-base "build/$mode" --build-lib "$lib"
if [ "$mode" = asan ]; then
  # Python itself is not instrumented: its own allocations at exit are no leaks of ours.
  export ASAN_OPTIONS=detect_leaks=0:abort_on_error=1 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1
  LD_PRELOAD="$(gcc -print-file-name=libasan.so) $(gcc -print-file-name=libubsan.so)"
  export LD_PRELOAD PYTHONMALLOC=malloc
fi
mkdir -p "$(dirname "$junit")"
USBDRA_BUILD=$mode PYTHONPATH=$PWD/$lib "$python" -P -m pytest tests/unit tests/contract \
  --ignore tests/unit/bench \
  -o junit_family=xunit2 -o pythonpath= --import-mode=importlib --junitxml="$junit" -q
