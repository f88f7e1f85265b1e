"""Two streams that are wrong on purpose: chapter 01 runs them with workers, and workers import their classes by name.

What is right is `course_utils.streams.ShardedRecords`.
"""

from __future__ import annotations

import json
from itertools import islice

from torch.utils.data import IterableDataset, get_worker_info


class JsonLines(IterableDataset):
    """Every record of the files, in order; every worker reads all of them, so W workers give each record W times."""

    def __init__(self, paths):
        self.paths = list(paths)

    def __iter__(self):
        for path in self.paths:
            with open(path, encoding="utf-8") as lines:
                for line in lines:
                    yield json.loads(line)


class SharedLines(JsonLines):
    """Worker w of W yields records w, w + W, ...: each once, but the batches depend on the number of workers."""

    def __iter__(self):
        info = get_worker_info()
        share = (info.id, None, info.num_workers) if info else (None,)
        return islice(super().__iter__(), *share)
