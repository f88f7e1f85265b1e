"""Encoded photos in one file with an index, as a map-style dataset: one open file instead of one for each photo.

It changes no byte of a photo and decodes none before it is asked for. Re-exported by `datasets`.

What it saves is opening files: much on a network disk or with very many small ones, little where decoding takes the
time. It stops being worth it where photos are still added or removed (the file is made anew), and where the decoded
images fit on the disk at one size: `map_images` saves the decoding too.
"""

from __future__ import annotations

import json
import operator
import os
import struct
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import IO, Any

import numpy as np
import torch
from torch.utils.data import Dataset

from course_utils.batches import draws_nothing
from course_utils.image_folder import ImageFolderDataset, PackedNames
from course_utils.images import load_rgb

Sample = tuple[str | os.PathLike | bytes, int]

MAGIC, VERSION = b"photos\r\n", 1  # as PNG's: a transfer as text would change the line break
_HEAD = struct.Struct("<8sIIQQQ")  # magic, version, CRC of the index; photos, where the index begins, its length
_ROW = np.dtype([("offset", "<i8"), ("length", "<i8"), ("target", "<i8"), ("crc", "<u4")])


def pack_photos(
    samples: ImageFolderDataset | Sequence[Sample], path: str | os.PathLike, *, classes: Sequence[str] | None = None
) -> None:
    """Write the files of `samples`, as they are, into the record file `path`, with an index of them.

    samples : an `ImageFolderDataset`, whose transform is not used; or (path or bytes of a photo, target) for each
    path    : made, or replaced by one move at the end: it is never a part of a file. Its folder must be there
    classes : the names by number; those of the dataset, else "0", "1", ... up to the largest target
    raises  : ValueError without samples, for a target that is no class, for a photo that cannot be read (index, path)

    Memory: one photo, and the index: 28 bytes a photo and its name.
    """
    samples, names, classes = _listed(samples, classes)
    rows = np.zeros(len(samples), dtype=_ROW)
    with whole_or_nothing(path) as file:
        file.write(bytes(_HEAD.size))
        for index, (source, target) in enumerate(samples):
            content = _content(source, index)
            rows[index] = (file.tell(), len(content), _checked_target(target, index, classes), zlib.crc32(content))
            file.write(content)
        words = json.dumps({"classes": classes, "names": names}).encode("ascii")
        table, begin = rows.tobytes() + words, file.tell()
        file.write(table)
        file.seek(0)
        file.write(_HEAD.pack(MAGIC, VERSION, _crc(table, len(rows), begin), len(rows), begin, len(table)))


class PackedPhotos(Dataset):
    """The photos of a file that `pack_photos` wrote, decoded when they are asked for.

    path      : the record file
    transform : image -> image
    raises    : ValueError where it is no such file, is damaged, or of another version; FileNotFoundError

    `targets` is int64 (N,), `classes` the names by number. An example is (uint8 (3, H, W), int), or what `transform`
    makes of the image: equal to that of the `ImageFolderDataset` that was packed. Each process and thread opens the
    file at its first photo; a pickle holds the index and no open file. `close` closes that of the calling thread, which
    Windows needs before the file can be replaced; the next photo opens it again.
    """

    def __init__(self, path: str | os.PathLike, *, transform: Callable | None = None) -> None:
        self.path, self.transform = os.path.abspath(path), transform
        with open(self.path, "rb") as file:
            self._head, (self._rows, words) = _read_index(file, self.path)
        self.classes = tuple(words["classes"])
        self.class_to_idx = {name: number for number, name in enumerate(self.classes)}
        self.targets = torch.from_numpy(self._rows["target"].astype(np.int64))
        self._names, self._opened = PackedNames(words["names"]), threading.local()

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, index: int) -> tuple[Any, int]:
        """The image after `transform`, and its class; ValueError naming index and path where it cannot be decoded."""
        content = self.encoded(index)
        try:
            image = load_rgb(content)
        except ValueError as error:
            reason = str(error).partition(" cannot be read as an image: ")[2]
            told = f"example {index}: {self.name(index)} in {self.path} cannot be read as an image: {reason}"
            raise ValueError(told) from error
        return (image if self.transform is None else self.transform(image)), int(self.targets[index])

    def encoded(self, index: int) -> bytes:
        """The photo's file, byte for byte; ValueError where its bytes are not those that were packed."""
        row = self._rows[self._checked(index)]
        file = self._file()
        file.seek(int(row["offset"]))
        content = file.read(int(row["length"]))
        if zlib.crc32(content) != row["crc"]:
            told = f"example {index}: {self.name(index)} in {self.path} is damaged: {len(content)} bytes are not those"
            raise ValueError(f"{told} that were packed; pack the photos again")
        return content

    def name(self, index: int) -> str:
        """The path that the photo had in its folder; IndexError unless 0 <= index < N."""
        return self._names[self._checked(index)]

    @property
    def keyed(self) -> bool:
        """Whether no example draws anything; see `batches.draws_nothing`."""
        return type(self) is PackedPhotos and draws_nothing(self.transform)

    def close(self) -> None:
        """Close the file that the calling thread has open; the next photo opens it again."""
        self._opened.__dict__.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_opened"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _opened=threading.local())

    def _file(self) -> IO[bytes]:
        opened = self._opened.__dict__
        if opened.get("pid") != os.getpid():  # a forked worker's would share its place with the parent's
            opened.update(pid=os.getpid(), reader=_Reader(self.path, self._head))
        return opened["reader"].file

    def _checked(self, index: int) -> int:
        index = operator.index(index)
        if not 0 <= index < len(self):
            raise IndexError(f"index must lie in 0 .. {len(self) - 1} ({len(self)} examples), got {index}")
        return index


class _Reader:
    """An open record file, closed when nobody holds it any more."""

    def __init__(self, path: str, head: tuple) -> None:
        self.file = open(path, "rb")  # noqa: SIM115
        if _read_head(self.file, path) != head:
            raise ValueError(f"{path} is no longer the file that was opened: make the PackedPhotos anew")

    def __del__(self) -> None:
        if hasattr(self, "file"):
            self.file.close()


@contextmanager
def whole_or_nothing(path: str | os.PathLike) -> Iterator[IO[bytes]]:
    """A new file beside `path` that takes its place in one move; on any error it goes and `path` stays as it was."""
    path = os.path.abspath(path)
    draft = os.path.join(os.path.dirname(path), f".{os.path.basename(path)}.{os.getpid()}-{threading.get_ident()}.part")
    try:
        with open(draft, "w+b") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())  # else a power cut may leave the name without the bytes
        os.replace(draft, path)
    except BaseException:
        if os.path.exists(draft):
            os.remove(draft)
        raise


def _listed(samples: Any, classes: Sequence[str] | None) -> tuple[list[Sample], list[str], list[str]]:
    """Sources with targets, names, classes."""
    if isinstance(samples, ImageFolderDataset):
        classes = samples.classes if classes is None else classes
        root, targets = samples.root, samples.targets.tolist()
        samples = [(samples.path(index), target) for index, target in enumerate(targets)]
        names = [os.path.relpath(path, root).replace(os.sep, "/") for path, _ in samples]
    else:
        samples = list(samples)
        names = [f"photo {i}" if isinstance(it[0], bytes) else os.fspath(it[0]) for i, it in enumerate(samples)]
    if not samples:
        raise ValueError("there is nothing to pack: need at least one photo")
    if classes is None:
        classes = [str(number) for number in range(max(int(target) for _, target in samples) + 1)]
    return samples, names, list(classes)


def _content(source: str | os.PathLike | bytes, index: int) -> bytes:
    if isinstance(source, bytes):
        return source
    try:
        with open(source, "rb") as file:
            return file.read()
    except OSError as error:
        raise ValueError(f"example {index}: {os.fspath(source)} cannot be read: {error.strerror}") from error


def _checked_target(target: int, index: int, classes: list[str]) -> int:
    number = operator.index(target)
    if not 0 <= number < len(classes):
        raise ValueError(f"example {index}: targets must lie in 0 .. {len(classes) - 1}, got {number}")
    return number


def _crc(table: bytes, number: int, begin: int) -> int:
    """Of the index and of what the head says about it."""
    return zlib.crc32(table, zlib.crc32(struct.pack("<QQ", number, begin)))


def _read_head(file: IO[bytes], path: str) -> tuple:
    """Magic, version, CRC, number of photos, begin and length of the index."""
    head = file.read(_HEAD.size)
    if len(head) < _HEAD.size or not head.startswith(MAGIC):
        raise ValueError(f"{path} is no record file of photos: it begins with {head[:8]!r}, needed {MAGIC!r}")
    fields = _HEAD.unpack(head)
    if fields[1] != VERSION:
        raise ValueError(f"{path} is a record file of version {fields[1]}, this reads {VERSION}: pack the photos again")
    return fields


def _read_index(file: IO[bytes], path: str) -> tuple[tuple, tuple[np.ndarray, dict]]:
    head = _read_head(file, path)
    _, _, crc, number, begin, length = head
    file.seek(0, os.SEEK_END)
    if file.tell() != begin + length:
        raise ValueError(f"{path} has {file.tell()} bytes, its head says {begin + length}: copy or pack it again")
    file.seek(begin)
    table = file.read(length)
    if _crc(table, number, begin) != crc:
        raise ValueError(f"the index of {path} is damaged: copy the file or pack the photos again")
    rows = np.frombuffer(table, dtype=_ROW, count=number)
    return head, (rows.copy(), json.loads(table[number * _ROW.itemsize :]))
