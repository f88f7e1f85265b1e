"""Memory of the paths of a large image folder, as `ImageFolderDataset` keeps them, against a list of strings.

In the process itself: the bytes of the objects. In a worker: memory of its own after it has looked at every path; a
forked worker shares the parent's pages until it writes on them, and a look at a string counts its references up. The
worker is a forked process and its memory comes from /proc, so those rows are there on Linux only. A worker's row has
the parent's paths as its unit of comparison: 0.1 x means that it copies a tenth of the list's copied memory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from benchmarks.timing import Row, memory
from course_utils.image_folder import PackedNames

BAR, NUM_PATHS = 0.5, 600_000
FORMS = ("PackedNames", "list")
SMAPS = Path("/proc/self/smaps_rollup")

_FORK = """
import json, os, sys
from benchmarks.rows.paths import kept, names, private_mib
number, rounds = int(sys.argv[1]), int(sys.argv[2])
copied = {how: [] for how in sys.argv[3:]}
for how in copied:
    paths = kept(how, names(number))
    for _ in range(rounds):
        read, write = os.pipe()
        if os.fork() == 0:
            before = private_mib()
            for index in range(len(paths)):
                paths[index]
            os.write(write, str(private_mib() - before).encode())
            os._exit(0)
        os.wait()
        copied[how].append(float(os.read(read, 100)))
print(json.dumps(copied))
"""


def names(number: int) -> list[str]:
    """Paths as a folder of that many photos has them, 24 characters."""
    return [f"class-{at % 100:03d}/{at:07d}_{at % 3}.jpg" for at in range(number)]


def kept(how: str, paths: list[str]) -> PackedNames | list[str]:
    """The paths in one of the two forms."""
    return PackedNames(paths) if how == "PackedNames" else paths


def private_mib() -> float:
    """Memory that this process shares with no other, in MiB."""
    fields = dict(line.split(":") for line in SMAPS.read_text().splitlines()[1:])
    return sum(int(fields[f"Private_{kind}"].split()[0]) for kind in ("Clean", "Dirty")) / 1024


def size_mib(paths: PackedNames | list[str]) -> float:
    """Bytes of the objects themselves, in MiB."""
    if isinstance(paths, list):
        return (sys.getsizeof(paths) + sum(map(sys.getsizeof, paths))) / 2**20
    return (paths._bytes.nbytes + paths._starts.nbytes) / 2**20


def worker_mib(number: int, *, rounds: int = 1, forms: tuple[str, ...] = FORMS) -> dict[str, list[float]]:
    """What a forked worker copies while it looks at every path, in MiB; each round has a worker of its own.

    The parent is a fresh process, which has no threads.
    """
    command = [sys.executable, "-c", _FORK, str(number), str(rounds), *forms]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def measure(*, quick: bool = False) -> list[Row]:
    number, rounds = (20_000, 2) if quick else (NUM_PATHS, 3)
    paths, name = names(number), f"of {number:,} paths: PackedNames over a list of str"
    rows = [
        memory("paths", f"memory {name}", {how: [size_mib(kept(how, paths))] * 2 for how in FORMS}, *FORMS, bar=BAR)
    ]
    if hasattr(os, "fork") and SMAPS.exists():
        own = worker_mib(number, rounds=rounds)
        rows.append(memory("paths", f"memory that a worker copies {name}", own, *FORMS, bar=BAR))
    return rows
