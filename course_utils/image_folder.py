"""Images in class folders as a map-style dataset, and what to do about bad files and empty classes.

It knows no order, no batch and no loader.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.batches import draws_nothing
from course_utils.folder_scan import Finding, FolderScan, scan_image_folder
from course_utils.images import load_rgb

__all__ = ["Finding", "FolderScan", "ImageFolderDataset", "scan_image_folder"]

_SHOWN = 5


class ImageFolderDataset(Dataset):
    """The images of `root`, one class a folder, decoded when they are asked for.

    root          : the folder, or a `FolderScan` of it, which is then not made again
    class_to_idx  : the training split's, for every other split: the numbers stay as given, and a folder of another
                    class is a problem. Without it the folders are numbered by their sorted names
    transform     : image -> image
    empty_classes : what to do about class folders without an image: "error"; "keep" their numbers; "drop" them and
                    number the others anew (not the numbers of a given class_to_idx: those stay)
    skip_problems : leave out what the scan calls a problem, instead of an error; `problems` names it
    decode        : False does not look into the files first; a bad one is then an error when it is read
    raises        : ValueError on problems and empty classes, each named; for another `empty_classes`; for no classes

    `targets` is int64 (N,), `classes` the names by number; `ignored` and `problems` are the scan's. An example is
    (uint8 (3, H, W), int), or what `transform` makes of the image.
    """

    def __init__(
        self,
        root: str | os.PathLike | FolderScan,
        *,
        class_to_idx: Mapping[str, int] | None = None,
        transform: Callable | None = None,
        empty_classes: str = "error",
        skip_problems: bool = False,
        decode: bool = True,
        progress: bool = False,
    ) -> None:
        scan = root if isinstance(root, FolderScan) else None
        if scan is None:
            scan = scan_image_folder(root, class_to_idx=class_to_idx, decode=decode, progress=progress)
        elif class_to_idx is not None and dict(class_to_idx) != scan.class_to_idx:
            raise ValueError(f"the scan has the classes {scan.class_to_idx}, needed {dict(class_to_idx)}: scan anew")
        _check_problems(scan, skip_problems)
        self.classes = _kept_classes(scan, empty_classes, class_to_idx)
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.targets = torch.tensor(
            [self.class_to_idx[scan.classes[target]] for _, target in scan.samples], dtype=torch.int64
        )
        self.root, self.transform, self.ignored, self.problems = scan.root, transform, scan.ignored, scan.problems
        self._names = PackedNames([name for name, _ in scan.samples])

    def __len__(self) -> int:
        return len(self._names)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The image after `transform`, and its class; ValueError naming index and path where it cannot be decoded."""
        path = os.path.join(self.root, self._names[self._checked(index)])
        try:
            image = load_rgb(path)
        except ValueError as error:
            raise ValueError(f"example {index}: {error}") from error
        return (image if self.transform is None else self.transform(image)), int(self.targets[index])

    @property
    def keyed(self) -> bool:
        """Whether no example draws anything, so that no generator need be seeded for it; see `draws_nothing`."""
        return type(self) is ImageFolderDataset and draws_nothing(self.transform)  # a class derived from it may draw

    def path(self, index: int) -> Path:
        """The file of an example; IndexError unless 0 <= index < N."""
        return self.root / self._names[self._checked(index)]

    def _checked(self, index: int) -> int:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"index must lie in 0 .. {len(self) - 1} ({len(self)} examples), got {index}")
        return index


class PackedNames(Sequence):
    """Many strings in two arrays: half of a list's memory, and workers share it (a look at a string copies its page).

    names : strings; what is no Unicode in a file name (Linux: bytes, Windows: half a pair) comes back as it was
    """

    def __init__(self, names: Sequence[str]) -> None:
        encoded = [name.encode("utf-8", "surrogatepass") for name in names]
        self._bytes = np.frombuffer(b"".join(encoded), dtype=np.uint8)
        self._starts = np.cumsum([0, *map(len, encoded)], dtype=np.int64)

    def __len__(self) -> int:
        return len(self._starts) - 1

    def __getitem__(self, index: int) -> str:
        """IndexError unless 0 <= index < N."""
        if not 0 <= index < len(self):
            raise IndexError(f"index must lie in 0 .. {len(self) - 1}, got {index}")
        start, stop = self._starts.item(index), self._starts.item(index + 1)
        return self._bytes[start:stop].tobytes().decode("utf-8", "surrogatepass")


def _check_problems(scan: FolderScan, skip_problems: bool) -> None:
    if not scan.problems or skip_problems:
        return
    shown = "; ".join(f"{path}: {reason}" for path, reason in scan.problems[:_SHOWN])
    more = f"; and {len(scan.problems) - _SHOWN} more" if len(scan.problems) > _SHOWN else ""
    raise ValueError(
        f"{scan.root} has {len(scan.problems)} problems: {shown}{more}. "
        "Mend or remove them, or leave them out with skip_problems=True"
    )


def _kept_classes(scan: FolderScan, empty_classes: str, class_to_idx: Mapping[str, int] | None) -> tuple[str, ...]:
    if empty_classes not in ("error", "keep", "drop"):
        raise ValueError(f'empty_classes must be "error", "keep" or "drop", got {empty_classes!r}')
    if not scan.classes:
        raise ValueError(f"{scan.root} holds no class folders; need one folder for each class, with images in it")
    if scan.empty_classes and empty_classes == "error":
        raise ValueError(
            f"{scan.root} has classes without an image: {', '.join(scan.empty_classes)}. Remove the folders, or say "
            'empty_classes="keep" (they keep their numbers) or "drop" (the others are numbered anew)'
        )
    if empty_classes == "drop" and class_to_idx is None:
        return tuple(name for name in scan.classes if name not in scan.empty_classes)
    return scan.classes
