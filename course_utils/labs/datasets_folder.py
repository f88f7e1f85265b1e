"""A folder of photos under the tools that chapter 01 uses on it: what each of them shows.

Every tool is a plain function of the files. It knows no mark and no widget.
"""

from __future__ import annotations

import hashlib
import io
import os
from collections import defaultdict
from collections.abc import Collection
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from course_utils.catalogue import read_manifest
from course_utils.folder_scan import IMAGE_SUFFIXES
from course_utils.images import why_unreadable

TOOLS = ("file list", "hidden names", "headers", "decoding", "contents")
_ORIENTATION = 274  # the EXIF tag


class Entry(NamedTuple):
    """A file or folder: path from the root with /, whether it is a folder, and its bytes, or the entries in it."""

    path: str
    is_folder: bool
    size: int

    @property
    def hidden(self) -> bool:
        """Whether a file browser would leave it out: it, or a folder that it lies in, begins with a dot."""
        return any(part.startswith(".") for part in self.path.split("/"))


class Header(NamedTuple):
    """What an image file says about itself before its pixels: 1 is the EXIF orientation of an upright photo."""

    width: int
    height: int
    mode: str
    orientation: int


class MessyFolder:
    """A messy catalogue as each tool shows it; whatever is read is read once.

    root   : of `make_catalogue(..., messy=True)`
    raises : ValueError where nothing is planted: then there is nothing to score
    """

    def __init__(self, root: str | os.PathLike) -> None:
        self.root, manifest = Path(root), read_manifest(root)
        self.planted: list[dict[str, str]] = manifest["planted"]
        self._own = {"manifest.json", *manifest["index"]}
        if not self.planted:
            raise ValueError(f"{root} has no planted faults: make_catalogue(..., messy=True) plants them")

    @cached_property
    def entries(self) -> list[Entry]:
        """Everything in the folder, sorted by path, but for the catalogue's own index and manifest."""
        found = []
        for folder, folders, files in os.walk(self.root):
            place = Path(folder).relative_to(self.root)
            for name in folders:
                path = place / name
                found.append(Entry(path.as_posix(), True, len(os.listdir(self.root / path))))
            for name in files:
                path = place / name
                found.append(Entry(path.as_posix(), False, os.path.getsize(self.root / path)))
        return sorted(entry for entry in found if entry.path not in self._own)

    @cached_property
    def images(self) -> list[str]:
        """Paths of the files whose name ends as an image's, hidden ones too."""
        return [e.path for e in self.entries if not e.is_folder and e.path.lower().endswith(IMAGE_SUFFIXES)]

    @cached_property
    def headers(self) -> dict[str, Header | None]:
        """Of each image file its header; None where there is none."""
        return {path: read_header(self.root / path) for path in self.images}

    @cached_property
    def unreadable(self) -> dict[str, str]:
        """Image files that cannot be decoded, and why."""
        reasons = {path: why_unreadable(self.root / path) for path in self.images}
        return {path: reason for path, reason in reasons.items() if reason is not None}

    @cached_property
    def twins(self) -> dict[str, list[str]]:
        """Files that hold the same bytes as others, and which."""
        alike = defaultdict(list)
        for entry in self.entries:
            if not entry.is_folder and entry.size:
                alike[hashlib.sha256((self.root / entry.path).read_bytes()).digest()].append(entry.path)
        return {
            path: [other for other in paths if other != path]
            for paths in alike.values()
            for path in paths[1:] + paths[:1]
            if len(paths) > 1
        }

    @cached_property
    def thumbnails(self) -> dict[str, bytes]:
        """A small JPEG of each image file that has pixels, lying as it is stored."""
        made = {path: thumbnail(self.root / path) for path in self.images}
        return {path: content for path, content in made.items() if content is not None}

    def shown_by(self, tool: str) -> set[str]:
        """Paths at which this tool alone shows something odd; one of `TOOLS`."""
        shown = [entry for entry in self.entries if not entry.hidden]
        if tool == "file list":
            empty = {e.path for e in shown if not e.size}
            ending = {e.path for e in shown if not e.is_folder and e.path not in self.images}
            return empty | ending | {e.path for e in self.entries if e.path.partition("/")[0] == "__MACOSX"}
        if tool == "hidden names":
            return {entry.path for entry in self.entries if entry.hidden}
        if tool == "headers":
            return {path for path, header in self.headers.items() if header is None or header[2:] != ("RGB", 1)}
        return set(self.unreadable) if tool == "decoding" else set(self.twins)

    def seen_with(self, tools: Collection[str]) -> set[str]:
        """Paths at which these tools together show something odd; hidden ones only with the tool that lists them."""
        unlisted = set() if "hidden names" in tools else self.shown_by("hidden names")
        seen = set().union(*(self.shown_by(tool) for tool in tools if tool != "contents"))
        if "contents" in tools:
            seen |= {path for path, twins in self.twins.items() if set(twins) - unlisted}
        return seen - unlisted

    @cached_property
    def originals(self) -> set[str]:
        """Photos in their place whose copies elsewhere are a planted fault, and which no fault names."""
        planted = {fault["path"] for fault in self.planted}
        named = planted | {fault["of"] for fault in self.planted if "of" in fault}
        return {path for path, twins in self.twins.items() if path not in named and planted & set(twins)}

    def tools_for(self, path: str) -> list[str]:
        """The tools that show something odd at this path."""
        return [tool for tool in TOOLS if path in self.shown_by(tool)]


def read_header(path: str | os.PathLike) -> Header | None:
    """Size, mode and orientation, without reading a pixel; None where the file is no image."""
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as image:
            return Header(*image.size, image.mode, image.getexif().get(_ORIENTATION, 1))
    except UnidentifiedImageError:
        return None


def thumbnail(path: str | os.PathLike, side: int = 64) -> bytes | None:
    """A JPEG of at most `side` pixels, not turned upright; None where the file cannot be decoded."""
    from PIL import Image

    try:
        with Image.open(path) as image:
            image.load()
            if image.mode.startswith("I"):
                image = Image.fromarray((np.asarray(image) // 257).astype(np.uint8))
            image = image.convert("RGBA" if image.has_transparency_data else "RGB")
    except OSError:
        return None
    image.thumbnail((side, side))
    if image.mode == "RGBA":
        image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    file = io.BytesIO()
    image.save(file, "JPEG", quality=85)
    return file.getvalue()
