"""Feeds one target for as long as one likes: ``make fuzz TARGET=json_paths SECONDS=60``.

atheris guides it by the branches that an input takes. What it finds is a bug's input: put it into ``seeds``.
"""

from __future__ import annotations

import atexit
import sys
import tempfile
from pathlib import Path

import atheris

from lookup_hints.errors import counted

name, seconds = sys.argv[1:]
with atheris.instrument_imports(include=["lookup_hints", "lookup_connectors", "jmespath", "maxminddb"]):
    from tests.unit.fuzz.targets import TARGETS, seeds

    if name not in TARGETS:
        sys.exit(f"There is no target {name}; there are {', '.join(TARGETS)}.")
    known = seeds()[name]
    for seed in known:  # so that what is imported only when it is needed is guided, too
        TARGETS[name](seed)

print(f"{name}: {counted(len(known), 'input')} to begin with")
corpus = tempfile.TemporaryDirectory()
atexit.register(corpus.cleanup)  # atheris ends the process, and leaves no block
for at, seed in enumerate(known):
    (Path(corpus.name) / f"seed-{at}").write_bytes(seed)
limits = [f"-max_total_time={seconds}", "-timeout=2", "-rss_limit_mb=2048", "-max_len=4096"]
atheris.Setup([sys.argv[0], *limits, corpus.name], TARGETS[name])
atheris.Fuzz()
