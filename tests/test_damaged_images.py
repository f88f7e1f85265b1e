"""Three hundred damaged image files: the scan ends, and what it passes is what can be read."""

import random
import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
import torch
from PIL import Image

from course_utils.datasets import ImageFolderDataset, load_rgb, scan_image_folder

pytestmark = pytest.mark.filterwarnings("ignore")  # Pillow warns of odd metadata and of large sizes
FORMATS = {"jpg": "JPEG", "png": "PNG", "gif": "GIF", "bmp": "BMP", "webp": "WEBP", "tiff": "TIFF"}
EACH = 6  # files of each format and kind of damage that draws


def encoded(suffix: str, **how) -> bytes:
    """The bytes of a sound image of 24 x 16 pixels."""
    pixels = np.random.default_rng(3).integers(0, 256, (2, 3, 3), dtype=np.uint8)
    image = Image.fromarray(pixels).resize((24, 16))
    file = BytesIO()
    image.save(file, FORMATS[suffix], **how)
    return file.getvalue()


def cut(data, draw):
    return data[: draw.randrange(1, len(data))]


def flipped(data, draw):
    changed = bytearray(data)
    for _ in range(draw.choice([1, 4, 30])):
        changed[draw.randrange(len(data))] ^= draw.randrange(1, 256)
    return bytes(changed)


def head_flipped(data, draw):
    return flipped(data[:40], draw) + data[40:]


def zeroed(data, draw):
    start = draw.randrange(len(data))
    stop = min(len(data), start + draw.choice([2, 16, 400]))
    return data[:start] + bytes(stop - start) + data[stop:]


def lengthened(data, draw):
    return data + draw.randbytes(draw.choice([1, 50, 5000]))


def doubled_inside(data, draw):
    start = draw.randrange(len(data))
    return data[: start + 20] + data[start:]


def with_another_head(data, draw):
    return encoded(draw.choice([*FORMATS]))[:20] + data[20:]


DRAWN = (cut, flipped, head_flipped, zeroed, lengthened, doubled_inside, with_another_head)


def png_of(width: int, height: int, rows: bytes) -> bytes:
    """A PNG, sound by its checksums, that says it is grey, 8 bits, width x height."""
    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    parts = [struct.pack(">I", len(b)) + name + b + struct.pack(">I", zlib.crc32(name + b)) for name, b in chunks]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def jpeg_of(width: int, height: int) -> bytes:
    """A JPEG whose header was changed to say that it is width x height."""
    data = encoded("jpg")
    place = data.index(b"\xff\xc0") + 5
    return data[:place] + struct.pack(">HH", height, width) + data[place + 4 :]


def special_files() -> dict[str, bytes]:
    """What no drawing would make: empty files, text, other things under an image's name, huge sizes."""
    files = {f"empty.{suffix}": b"" for suffix in FORMATS}
    files |= {f"one_byte.{suffix}": encoded(suffix)[:1] for suffix in FORMATS}
    files |= {f"text.{suffix}": b"not an image\n" * 9 for suffix in FORMATS}
    files |= {f"html.{suffix}": b"<!DOCTYPE html><title>404</title>" for suffix in FORMATS}
    files |= {f"zeros.{suffix}": bytes(3000) for suffix in FORMATS}
    files |= {f"was_{one}.{two}": encoded(one) for one in FORMATS for two in FORMATS}
    files |= {"pickled.jpg": b"\x80\x04N.", "zip.png": b"PK\x03\x04" + bytes(60), "heic.heic": b"\0\0\0\x18ftypheic"}
    files |= {"svg.png": b"<svg xmlns='http://www.w3.org/2000/svg'/>", "eps.jpg": b"%!PS-Adobe-3.0 EPSF-3.0\n"}
    files |= {"no_rows.png": png_of(0, 5, b""), "no_pixels.jpg": jpeg_of(0, 0), "short.png": png_of(24, 16, bytes(30))}
    files |= {"bomb.png": png_of(40_000, 40_000, bytes(99)), "bomb.jpg": jpeg_of(65_000, 65_000)}
    files |= {"large.png": png_of(3_000, 3_000, bytes(99)), "large.jpg": jpeg_of(3_000, 3_000)}
    files["huge.gif"] = encoded("gif")[:6] + struct.pack("<HH", 65_535, 65_535) + encoded("gif")[10:]
    files["huge.bmp"] = encoded("bmp")[:18] + struct.pack("<ii", 2**31 - 1, 2**31 - 1) + encoded("bmp")[26:]
    return files


def drawn_files() -> dict[str, bytes]:
    draw = random.Random(2026)
    return {
        f"{damage.__name__}_{number}.{suffix}": damage(encoded(suffix), draw)
        for suffix in FORMATS
        for damage in DRAWN
        for number in range(EACH)
    }


@pytest.fixture(scope="module")
def damaged(tmp_path_factory):
    """The bytes of each damaged file, all in one class folder, and the scan of it: one call for all of them."""
    root = tmp_path_factory.mktemp("damaged")
    (root / "a").mkdir()
    files = special_files() | drawn_files()
    for name, data in files.items():
        (root / "a" / name).write_bytes(data)
    return files, scan_image_folder(root)


def passed(scan) -> set[str]:
    return {path.removeprefix("a/") for path, _ in scan.samples}


def reasons(scan) -> dict[str, str]:
    return {path.removeprefix("a/"): reason for path, reason in scan.problems}


def test_each_file_is_passed_or_reported_with_a_reason_and_both_happen(damaged):
    files, scan = damaged
    assert len(files) >= 300 and scan.ignored == []
    assert {reasons(scan)[f"empty.{suffix}"] for suffix in FORMATS} == {"the file is empty"}
    assert sorted([*passed(scan), *reasons(scan)]) == sorted(files)
    assert len(passed(scan)) > 50 and len(reasons(scan)) > 100
    assert all(reason.strip() and " at 0x" not in reason for reason in reasons(scan).values())


def test_the_scan_passes_a_file_exactly_where_load_rgb_reads_it(damaged):
    files, scan = damaged
    for name, data in files.items():
        try:
            image = load_rgb(data)
        except ValueError as error:
            assert name in reasons(scan) and f"image of {len(data)} bytes cannot be read" in str(error)
        else:
            assert name in passed(scan)
            assert image.dtype == torch.uint8 and image.dim() == 3 and image.shape[0] == 3 and image.numel() > 0


def test_the_dataset_reads_all_that_the_scan_passes_and_the_same_pixels_each_time(damaged):
    files, scan = damaged
    dataset = ImageFolderDataset(scan, skip_problems=True)
    assert len(dataset) == len(passed(scan)) and len(dataset.problems) == len(reasons(scan))
    for index in range(len(dataset)):
        image, target = dataset[index]
        assert target == 0 and torch.equal(image, load_rgb(files[dataset.path(index).name]))


def test_a_problem_is_an_error_that_names_the_file_when_it_is_read_all_the_same(damaged):
    _, scan = damaged
    unchecked = ImageFolderDataset(scan.root, decode=False)
    for index in range(0, len(unchecked), 10):
        name = unchecked.path(index).name
        if name in reasons(scan):
            with pytest.raises(ValueError, match=f"example {index}: .*{name} cannot be read as an image"):
                unchecked[index]


def test_the_content_decides_and_not_the_suffix(damaged):
    files, scan = damaged
    swapped = [name for name in files if name.startswith("was_")]
    assert len(swapped) == len(FORMATS) ** 2 and passed(scan) >= {*swapped}
    for name in swapped:
        assert torch.equal(load_rgb(scan.root / "a" / name), load_rgb(encoded(name[4:].partition(".")[0])))


@pytest.mark.parametrize("kind", ["empty", "one_byte", "text", "html", "zeros", "bomb", "huge", "no"])
def test_what_is_no_image_at_all_is_never_passed(damaged, kind):
    files, scan = damaged
    names = {name for name in files if name.startswith((f"{kind}.", f"{kind}_"))}
    assert names and names <= {*reasons(scan)}


def test_a_decompression_bomb_is_refused_by_its_stated_size(damaged):
    _, scan = damaged
    bombs = {name: reason for name, reason in reasons(scan).items() if name.startswith(("bomb", "huge"))}
    assert len(bombs) == 4 and all("could be decompression bomb" in reason for reason in bombs.values())


def test_a_jpeg_or_png_that_was_cut_short_is_never_passed(damaged):
    files, scan = damaged
    cut_short = {name for name in files if name.startswith("cut_") and name.endswith(("jpg", "png"))}
    assert len(cut_short) == 2 * EACH and cut_short <= {*reasons(scan)}


def test_pillows_verify_would_pass_files_that_cannot_be_read(damaged):
    files, scan = damaged
    verified = set()
    for name in reasons(scan):
        try:
            with Image.open(BytesIO(files[name])) as image:
                image.verify()
            verified.add(name)
        except Exception:  # noqa: S110 - whatever Pillow raises, it has noticed
            continue
    assert len(verified) > 20
