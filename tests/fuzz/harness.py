# SPDX-License-Identifier: Apache-2.0
"""Hands a target to libFuzzer with the limits that all fuzzers share.

Owns the corpus folder and the flags. Options of the command line come last and so win:
`-max_total_time=10` ends a run by itself, with status 0 when nothing was found.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import atheris

MAX_SIZE = 8192
SECONDS_PER_INPUT = 5
WORK = Path("build/fuzz")


def fuzz(
    one_input: Callable[[bytes], None],
    seeds: Mapping[str, bytes],
    words: Iterable[str] = (),
    max_size: int = MAX_SIZE,
) -> None:
    """Run `one_input` until libFuzzer's limits, from `seeds` by name, with `words` to try.

    Any exception, an input that takes too long and too much memory are findings.
    """
    name = Path(sys.argv[0]).stem.removeprefix("fuzz_")
    corpus = WORK / name
    corpus.mkdir(parents=True, exist_ok=True)
    for seed, data in seeds.items():
        (corpus / seed).write_bytes(data)
    flags = [f"-max_len={max_size}", f"-timeout={SECONDS_PER_INPUT}"]
    flags.append(f"-artifact_prefix={WORK}/{name}-")
    if quoted := [word.replace("\\", "\\\\").replace('"', '\\"') for word in words]:
        dictionary = WORK / f"{name}.words"
        dictionary.write_text("".join(f'"{word}"\n' for word in quoted))
        flags.append(f"-dict={dictionary}")
    atheris.Setup([sys.argv[0], *flags, *sys.argv[1:], str(corpus)], one_input)
    atheris.Fuzz()
