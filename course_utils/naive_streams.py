"""Streams that are wrong on purpose: workers of chapters 01 and 04 import their classes by name.

What is right is `course_utils.streams.ShardedRecords`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
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


class Stream(IterableDataset):
    """The numbers 0, 1, ...; each worker reads all of them."""

    def __init__(self, num_examples: int) -> None:
        self.num_examples = num_examples

    def __repr__(self) -> str:
        return f"Stream({self.num_examples})"

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.num_examples))
