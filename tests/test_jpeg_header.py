"""`is_plain_jpeg`: it says yes only where Pillow would, whatever the bytes are; and what is usual gets a yes."""

import io
import random
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image, ImageCms

from course_utils import images
from course_utils.images import load_rgb
from course_utils.jpeg_header import is_plain_jpeg
from tests.test_damaged_images import drawn_files, special_files

PIXELS = np.random.default_rng(5).integers(0, 256, (3, 4, 3), dtype=np.uint8)
fixed = settings(max_examples=200, derandomize=True, deadline=None, database=None)
COMMENT = b"\xff\xfe\x00\x06four"
THUMBNAIL_EXIF = b"Exif\0\0MM\0*" + bytes(40)  # and a whole JPEG after it


def jpeg(mode="RGB", **options):
    file = io.BytesIO()
    Image.fromarray(PIXELS).resize((24, 16)).convert(mode).save(file, "JPEG", **options)
    return file.getvalue()


def exif(orientation):
    found = Image.Exif()
    found[274] = orientation
    return found


def block(marker, content):
    return bytes([0xFF, marker]) + (len(content) + 2).to_bytes(2, "big") + content


def with_block(marker, content):
    """A plain JPEG with one more block, directly after its start."""
    return jpeg()[:2] + block(marker, content) + jpeg()[2:]


def with_frame(**at):
    """A plain JPEG with other bytes at places of its frame: 0 bits, 1 and 2 height, 3 and 4 width, 5 components."""
    content = bytearray(jpeg())
    frame = content.index(b"\xff\xc0") + 4
    for place, value in at.items():
        content[frame + int(place[1:])] = value
    return bytes(content)


def header_length(content):
    """Up to the end of the scan's own block; the compressed data follow."""
    scan = content.index(b"\xff\xda")
    return scan + 2 + int.from_bytes(content[scan + 2 : scan + 4], "big")


def pillow_says_plain(content):
    """The rule of `load_rgb` where Pillow reads the header."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            with Image.open(io.BytesIO(content)) as image:
                return images._is_plain_jpeg(image)
        except Exception:
            return False


USUAL = {
    "colour": jpeg(),
    "grey": jpeg("L"),
    "progressive": jpeg(progressive=True),
    "grey, progressive": jpeg("L", progressive=True),
    "own Huffman tables": jpeg(optimize=True),
    "nothing halved": jpeg(subsampling=0),
    "quality 1": jpeg(quality=1),
    "restart markers": jpeg(restart_marker_blocks=1),
    "comment": jpeg(comment=b"by hand"),
    "density": jpeg(dpi=(72, 72)),
    "cut in its data": jpeg()[: header_length(jpeg())],
    "more after its end": jpeg() + bytes(99),
}
UNUSUAL = {
    **{f"orientation {number}": jpeg(exif=exif(number)) for number in range(1, 9)},
    "a thumbnail in EXIF": with_block(0xE1, THUMBNAIL_EXIF + jpeg()),
    "XMP": jpeg(xmp=b"<x:xmpmeta tiff:Orientation='6'/>"),
    "a colour profile": jpeg(icc_profile=ImageCms.ImageCmsProfile(ImageCms.createProfile("sRGB")).tobytes()),
    "CMYK": jpeg("CMYK"),
    "Adobe": with_block(0xEE, b"Adobe\x00\x64" + bytes(5)),
    "Photoshop": with_block(0xED, b"Photoshop 3.0\x00"),
    "a short JFIF": jpeg()[:2] + block(0xE0, b"JFIF\0") + jpeg()[2:],
    "a fill byte": jpeg()[:2] + b"\xff" + jpeg()[2:],
    "a byte between blocks": jpeg()[:2] + COMMENT + b"\x00" + jpeg()[2:],
    "a block too short": jpeg()[:2] + b"\xff\xfe\x00\x01" + jpeg()[2:],
    "four components": with_frame(_5=4)
    .replace(b"\xff\xc0\x00\x11", b"\xff\xc0\x00\x14")
    .replace(b"\x03\x11\x01\xff\xc4", b"\x03\x11\x01\x04\x11\x01\xff\xc4", 1),
    "a frame cut short": jpeg()[:2] + block(0xC0, b"\x08\0\x10\0") + jpeg()[2:],
    "a block that begins with another byte": jpeg()[:2] + COMMENT + b"\x00" + COMMENT[1:] + jpeg()[2:],
    "another first byte": b"\x00" + jpeg()[1:],
    "a scan without its block": jpeg().replace(b"\xff\xda\x00\x0c", b"\xff\xda\x00\x00"),
    "a restart before the scan": jpeg()[:2] + b"\xff\xd0" + jpeg()[2:],
    "two frames": jpeg().replace(b"\xff\xc0", block(0xC0, b"\x08\0\x10\0\x18\x01\x01\x11\0") + b"\xff\xc0", 1),
    "no frame": jpeg().replace(b"\xff\xc0", b"\xff\xfe", 1),
    "lossless": jpeg().replace(b"\xff\xc0", b"\xff\xc3", 1),
    "arithmetic": jpeg().replace(b"\xff\xc0", b"\xff\xc9", 1),
    "12 bits": with_frame(_0=12),
    "two components": with_frame(_5=2),
    "one component, blocks for three": with_frame(_5=1),
    "no rows": with_frame(_1=0, _2=0),
    "no columns": with_frame(_3=0, _4=0),
    "1025 x 1024 pixels": with_frame(_1=4, _2=1, _3=4, _4=0),
    "a table of 16 bits": with_block(0xDB, bytes([0x14]) + bytes(128)),
    "half a table": with_block(0xDB, bytes(33)),
    "nothing": b"",
    "a start": b"\xff\xd8\xff",
    "another format": b"\x89PNG\r\n\x1a\n" + jpeg()[2:],
}


@pytest.mark.parametrize("name", USUAL)
def test_what_is_usual_is_known_without_pillow_and_pillow_agrees(name):
    assert is_plain_jpeg(USUAL[name]) and pillow_says_plain(USUAL[name])


@pytest.mark.parametrize("name", UNUSUAL)
def test_what_is_unusual_is_left_to_pillow(name):
    assert not is_plain_jpeg(UNUSUAL[name])


def test_1024_x_1024_pixels_are_the_most():
    assert is_plain_jpeg(with_frame(_1=4, _2=0, _3=4, _4=0))


def test_a_header_cut_anywhere_is_left_to_pillow():
    for content in (jpeg(), jpeg("L", progressive=True), jpeg(comment=b"by hand")):
        assert not any(is_plain_jpeg(content[:length]) for length in range(header_length(content)))
        assert is_plain_jpeg(content[: header_length(content)])


def test_a_yes_is_pillows_yes_for_every_damaged_file():
    said = {name: is_plain_jpeg(content) for name, content in (special_files() | drawn_files()).items()}
    files = special_files() | drawn_files()
    assert sum(said.values()) > 15 and len(files) > 300
    assert [name for name, yes in said.items() if yes and not pillow_says_plain(files[name])] == []


def test_a_yes_is_pillows_yes_for_3000_headers_with_changed_bytes():
    draw, answers = random.Random(11), {True: 0, False: 0}
    sound, values = [jpeg(), jpeg("L"), jpeg(progressive=True)], [0, 1, 2, 3, 8, 0xC0, 0xD8, 0xE1, 0xFE, 0xFF]
    for number in range(3000):
        content = bytearray(sound[number % 3])
        for _ in range(draw.choice([1, 1, 2, 6])):
            content[draw.randrange(header_length(sound[number % 3]))] = draw.choice(values)
        answers[is_plain_jpeg(bytes(content))] += 1
        assert not is_plain_jpeg(bytes(content)) or pillow_says_plain(bytes(content))
    assert min(answers.values()) > 300


@fixed
@given(st.lists(st.tuples(st.integers(0xC0, 0xFF), st.binary(max_size=140)), max_size=4), st.binary(max_size=3))
def test_a_yes_is_pillows_yes_for_any_blocks_before_a_frame(blocks, junk):
    content = jpeg()[:2] + b"".join(block(*each) for each in blocks) + junk + jpeg()[2:]
    assert not is_plain_jpeg(content) or pillow_says_plain(content)


@fixed
@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail(tail):
    assert is_plain_jpeg(tail) in (True, False)
    assert not is_plain_jpeg(b"\xff\xd8\xff" + tail) or pillow_says_plain(b"\xff\xd8\xff" + tail)


def outcome(content):
    """The pixels, or the words of the error."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return load_rgb(content)
        except ValueError as error:
            return str(error)


def test_every_file_has_the_pixels_or_the_error_that_it_has_when_pillow_reads_each_header(monkeypatch):
    files = [*USUAL.values(), *UNUSUAL.values(), *special_files().values(), *drawn_files().values()]
    found = [outcome(content) for content in files]
    monkeypatch.setattr(images, "is_plain_jpeg", lambda content: False)
    kinds = set()
    for content, here in zip(files, found, strict=True):
        there = outcome(content)
        assert torch.equal(here, there) if isinstance(here, torch.Tensor) else here == there
        kinds.add(type(here))
    assert kinds == {torch.Tensor, str}


def test_pillow_opens_no_plain_jpeg(monkeypatch):
    monkeypatch.setattr(Image, "open", None)
    assert load_rgb(jpeg()).shape == load_rgb(jpeg("L")).shape == (3, 16, 24)
