"""What lies in a folder that holds a folder for each class: images, clutter, and what cannot be read.

The scan reports and decides nothing; `ImageFolderDataset` decides.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_utils.images import why_unreadable
from course_utils.machine import usable_cpus

# .heic is among them so that such a photo is reported as unreadable, and not passed over.
IMAGE_SUFFIXES = tuple(
    ".avif .bmp .gif .heic .heif .jfif .jp2 .jpe .jpeg .jpg .pbm .pgm .png .pnm .ppm .tif .tiff .webp".split()
)
_CLUTTER = {"__macosx", "thumbs.db", "desktop.ini", "@eadir", "$recycle.bin", "lost+found"}
# Two threads on two cores decode files of 46 kB 1.6 times as fast, and files of 5 kB at 0.7 times the speed: there the
# time goes into Python.
_THREADS_PAY_BYTES = 16_384


class Finding(NamedTuple):
    """A file or folder, by its path from the root with / on every system, and what is said about it."""

    path: str
    reason: str


@dataclass(frozen=True)
class FolderScan:
    """What lies in a folder of class folders.

    root          : the folder, absolute
    samples       : (path from the root, class) of each image that can be read, sorted by path
    classes       : names by number; class_to_idx is the same the other way round
    empty_classes : those whose folder is here and holds no image that can be read
    ignored       : what is no image, each with the reason: hidden, left by a system, another ending, in no class
    problems      : what should be an image and is not, each with the reason; and folders of unknown classes
    """

    root: Path
    samples: list[tuple[str, int]]
    classes: tuple[str, ...]
    class_to_idx: dict[str, int]
    empty_classes: tuple[str, ...]
    ignored: list[Finding]
    problems: list[Finding]

    def counts(self) -> dict[str, int]:
        """Images of each class, 0 included."""
        numbers = np.bincount([target for _, target in self.samples], minlength=len(self.classes))
        return dict(zip(self.classes, numbers.tolist(), strict=True))


def scan_image_folder(
    root: str | os.PathLike,
    *,
    class_to_idx: Mapping[str, int] | None = None,
    decode: bool = True,
    num_threads: int | None = None,
    progress: bool = False,
) -> FolderScan:
    """List `<class>/.../<image>` under `root` and decode every image once.

    class_to_idx : the training split's; without it the class folders are numbered by their sorted names
    decode       : False lists only, and a bad image is met when it is read
    num_threads  : that decode; default: one, or one a core where files are larger than 16 kB on average
    progress     : show a bar
    raises       : ValueError for a missing root, or a class_to_idx that does not number its names 0, 1, 2, ...
                   Whatever is wrong inside is reported instead

    Ignored are names that begin with a dot (`.ipynb_checkpoints`, `._photo.jpg`), `__MACOSX`, `Thumbs.db` and others
    that systems leave, files without an image's ending, and files beside the class folders. Paths are sorted, with /
    on every system, so the order is the same everywhere. Links are followed, but not in a circle.
    """
    root = Path(root).expanduser().absolute()
    if not os.path.isdir(root):
        raise ValueError(f"need a folder that holds a folder for each class; {root} is none")
    if class_to_idx is not None:
        _check_numbering(class_to_idx)
    walk = _Walk(root, class_to_idx)
    numbering = dict(class_to_idx) if class_to_idx is not None else _numbered(sorted(walk.classes))
    names = sorted(walk.images)
    reasons = _reasons(root, names, num_threads, progress) if decode else [None] * len(names)
    samples = [
        (name, numbering[name.partition("/")[0]]) for name, reason in zip(names, reasons, strict=True) if reason is None
    ]
    bad = [Finding(name, reason) for name, reason in zip(names, reasons, strict=True) if reason is not None]
    filled = {target for _, target in samples}
    return FolderScan(
        root=root,
        samples=samples,
        classes=tuple(sorted(numbering, key=numbering.get)),
        class_to_idx=numbering,
        empty_classes=tuple(name for name in sorted(walk.classes) if numbering[name] not in filled),
        ignored=sorted(walk.ignored),
        problems=sorted(walk.problems + bad),
    )


class _Walk:
    """The names of class folders and of files that should be images, unsorted; what is ignored; problems."""

    def __init__(self, root: Path, known: Mapping[str, int] | None) -> None:
        self.root, self.known = root, known
        self.classes: list[str] = []
        self.images: list[str] = []
        self.ignored: list[Finding] = []
        self.problems: list[Finding] = []
        folders = [("", ())]
        while folders:
            folders += self._visit(*folders.pop())

    def _visit(self, name: str, above: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
        """Sort what lies in the folder `name`, and return the folders to visit next; `above`: real paths on the way."""
        real = os.path.realpath(self.root / name)
        if real in above:
            self.problems.append(Finding(name, "it links to a folder that it lies in"))
            return []
        try:
            entries = os.listdir(real)
        except OSError as error:
            self.problems.append(Finding(name or ".", f"the folder cannot be read: {error.strerror}"))
            return []
        inside = [self._sort(f"{name}/{entry}" if name else entry) for entry in entries]
        return [(folder, (*above, real)) for folder in inside if folder is not None]

    def _sort(self, name: str) -> str | None:
        """Put a file where it belongs; return a folder that is to be visited."""
        reason = _why_clutter(name.rpartition("/")[2])
        is_folder = os.path.isdir(self.root / name)
        if reason is None and is_folder:
            return name if "/" in name or self._is_known_class(name) else None
        if reason is None and "/" not in name:
            reason = "it lies in no class folder"
        if reason is None and not name.lower().endswith(IMAGE_SUFFIXES):
            reason = "its name does not end as an image's"
        if reason is None:
            self.images.append(name)
        else:
            self.ignored.append(Finding(name, reason))
        return None

    def _is_known_class(self, name: str) -> bool:
        if self.known is None or name in self.known:
            self.classes.append(name)
            return True
        self.problems.append(Finding(name, f"class {name!r} is unknown; class_to_idx has {', '.join(self.known)}"))
        return False


def _why_clutter(name: str) -> str | None:
    if name.startswith("._"):
        return "macOS keeps attributes in such files"
    if name.startswith("."):
        return "its name begins with a dot"
    return "systems and archives leave it behind" if name.lower() in _CLUTTER else None


def _reasons(root: Path, names: list[str], num_threads: int | None, progress: bool) -> list[str | None]:
    """For each file why it cannot be decoded, or None."""
    from tqdm.auto import tqdm

    paths = [root / name for name in names]
    if num_threads is None:
        large = _mean_bytes(paths[:: len(paths) // 100 + 1]) > _THREADS_PAY_BYTES
        num_threads = usable_cpus() if large else 1
    with ThreadPoolExecutor(num_threads) as pool:
        results = pool.map(why_unreadable, paths) if num_threads > 1 else map(why_unreadable, paths)
        return list(tqdm(results, total=len(paths), desc="decoding", unit="file", disable=not progress))


def _mean_bytes(paths: Sequence[Path]) -> float:
    sizes = [os.path.getsize(path) for path in paths if os.path.isfile(path)]
    return sum(sizes) / max(1, len(sizes))


def _numbered(names: Sequence[str]) -> dict[str, int]:
    return {name: number for number, name in enumerate(names)}


def _check_numbering(class_to_idx: Mapping[str, int]) -> None:
    if sorted(class_to_idx.values()) != list(range(len(class_to_idx))):
        raise ValueError(f"class_to_idx must number its classes 0, 1, 2, ..., each once; got {dict(class_to_idx)}")
