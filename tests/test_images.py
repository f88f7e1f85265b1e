"""`images`: one policy for every mode, upright, from a file or bytes; a bad file is named with the reason."""

import io
import math
import random
import struct

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from course_utils import images
from course_utils.datasets import load_rgb
from course_utils.images import check_unit_range, resize

WIDTH, HEIGHT = 12, 8


def picture(mode="RGB"):
    """A smooth picture that looks different in every orientation."""
    y, x = np.mgrid[:HEIGHT, :WIDTH]
    return Image.fromarray(np.stack([x * 20, y * 30, 255 - x * 10], axis=-1).astype(np.uint8)).convert(mode)


def encoded(image, form, **options):
    file = io.BytesIO()
    image.save(file, form, **options)
    return file.getvalue()


def half(content):
    return content[: len(content) // 2]


def with_orientation(image, form, orientation):
    exif = Image.Exif()
    exif[274] = orientation
    return encoded(image, form, exif=exif)


def one_pixel(image, **options):
    return load_rgb(encoded(image, "PNG"), **options)[:, 0, 0].tolist()


def pixels(image):
    return torch.from_numpy(np.array(image)).permute(2, 0, 1)


def difference(left, right):
    assert left.shape == right.shape
    return int((left.int() - right.int()).abs().max())


@pytest.mark.parametrize("form", ["PNG", "BMP", "TIFF", "PPM", "WEBP"])
def test_an_rgb_file_without_loss_comes_out_bit_by_bit(form):
    options = {"lossless": True} if form == "WEBP" else {}
    image = load_rgb(encoded(picture(), form, **options))
    assert torch.equal(image, pixels(picture()))
    assert image.dtype == torch.uint8 and image.shape == (3, HEIGHT, WIDTH) and image.is_contiguous()


def test_a_path_a_string_and_bytes_give_the_same(tmp_path):
    path = tmp_path / "a.jpg"
    path.write_bytes(encoded(picture(), "JPEG"))
    loaded = [load_rgb(source) for source in (path, str(path), path.read_bytes(), bytearray(path.read_bytes()))]
    assert all(torch.equal(image, loaded[0]) for image in loaded)


@pytest.mark.parametrize(
    "mode, value, expected",
    [
        ("L", 90, [90, 90, 90]),
        ("1", 1, [255, 255, 255]),
        ("RGB", (1, 2, 3), [1, 2, 3]),
        ("LA", (90, 255), [90, 90, 90]),
        ("LA", (90, 0), [255, 255, 255]),
        ("RGBA", (10, 20, 30, 255), [10, 20, 30]),
        ("RGBA", (10, 20, 30, 0), [255, 255, 255]),
        ("RGBA", (0, 100, 255, 51), [204, 224, 255]),  # a fifth of the colour on white
    ],
)
def test_each_mode_gives_the_pixel_worked_out_by_hand(mode, value, expected):
    assert one_pixel(Image.new(mode, (2, 2), value)) == expected


def test_what_is_transparent_shows_the_background_asked_for():
    assert one_pixel(Image.new("RGBA", (2, 2), (10, 20, 30, 0)), background=(7, 8, 9)) == [7, 8, 9]


def palette_picture(**options):
    image = Image.new("P", (2, 1))
    image.putpalette([200, 0, 0, 0, 0, 200])
    image.putpixel((1, 0), 1)
    return load_rgb(encoded(image, "PNG", **options))[:, 0].T.tolist()


def test_a_palette_gives_its_colours_not_its_numbers():
    assert palette_picture() == [[200, 0, 0], [0, 0, 200]]


@pytest.mark.parametrize("transparency", [1, b"\xff\x00"])
def test_the_transparent_colour_of_a_palette_becomes_background(transparency):
    assert palette_picture(transparency=transparency) == [[200, 0, 0], [255, 255, 255]]


def test_the_transparent_colour_of_rgb_and_of_16_bit_grey_becomes_background():
    rgb = encoded(Image.new("RGB", (1, 1), (1, 2, 3)), "PNG", transparency=(1, 2, 3))
    assert load_rgb(rgb).flatten().tolist() == [255, 255, 255]
    grey = Image.fromarray(np.array([[300, 25700]], dtype=np.uint16))
    assert load_rgb(encoded(grey, "PNG", transparency=300))[0, 0].tolist() == [255, 100]


@pytest.mark.parametrize("form", ["PNG", "TIFF", "PPM"])
def test_16_bit_grey_is_scaled_not_clipped(form):
    values = np.array([[0, 128, 129, 257, 300, 25700, 65535]], dtype=np.uint16)
    image = load_rgb(encoded(Image.fromarray(values), form))
    assert image[:, 0].tolist() == [[0, 0, 1, 1, 1, 100, 255]] * 3


@pytest.mark.parametrize("mode", ["F", "I"])
def test_values_without_a_stated_range_are_refused(mode):
    with pytest.raises(ValueError, match="no stated range"):
        load_rgb(encoded(Image.new(mode, (2, 2), 1), "TIFF"))


def test_a_cmyk_photo_has_the_colours_of_the_photo_it_was_made_from():
    photo = picture().resize((64, 48))
    assert difference(load_rgb(encoded(photo.convert("CMYK"), "JPEG", quality=95)), pixels(photo)) < 20


@pytest.mark.parametrize("form", ["PNG", "TIFF", "JPEG"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_every_exif_orientation_is_applied_once(form, orientation):
    content = with_orientation(picture(), form, orientation)
    reference = Image.open(io.BytesIO(content))
    reference.load()  # Pillow turns a TIFF here
    upright = pixels(ImageOps.exif_transpose(reference).convert("RGB"))
    assert upright.shape[1:] == ((HEIGHT, WIDTH) if orientation < 5 else (WIDTH, HEIGHT))
    assert difference(load_rgb(content), upright) <= 2


def test_16_bit_grey_on_its_side_is_scaled_and_turned():
    values = np.arange(6, dtype=np.uint16).reshape(2, 3) * 257 * 40
    image = load_rgb(with_orientation(Image.fromarray(values), "PNG", 6))
    assert image[0].tolist() == [[120, 0], [160, 40], [200, 80]]


@pytest.mark.filterwarnings("ignore:Corrupt EXIF data")  # Pillow's, at every such photo
def test_a_damaged_exif_block_counts_as_none():
    content = encoded(picture(), "JPEG", exif=b"Exif\x00\x00II*\x00\xff\xff\xff\xff broken")
    assert load_rgb(content).shape == (3, HEIGHT, WIDTH)


@pytest.mark.parametrize("mode", ["RGB", "L"])
@pytest.mark.parametrize("options", [{}, {"progressive": True}, {"quality": 30}])
def test_the_fast_path_is_close_to_pillow(mode, options):
    content = encoded(picture(mode).resize((75, 53)), "JPEG", **options)
    assert difference(load_rgb(content), pixels(Image.open(io.BytesIO(content)).convert("RGB"))) <= 2


@pytest.mark.parametrize("mode, orientation, fast", [("RGB", 1, 1), ("L", 1, 1), ("RGB", 6, 0), ("CMYK", 1, 0)])
def test_the_fast_path_takes_plain_jpegs_and_nothing_else(monkeypatch, mode, orientation, fast):
    calls, decoder = [], images._jpeg_decoder()
    monkeypatch.setattr(images, "_jpeg_decoder", lambda: lambda *args: calls.append(1) or decoder(*args))
    load_rgb(with_orientation(picture(mode), "JPEG", orientation))
    load_rgb(encoded(picture(), "PNG"))
    assert len(calls) == fast


def refuse(*args):
    raise RuntimeError("torchvision was built without libjpeg")


@pytest.mark.parametrize("decoder", [None, refuse])
def test_pillow_reads_what_the_fast_path_cannot(monkeypatch, decoder):
    content = encoded(picture(), "JPEG")
    fast = load_rgb(content)
    monkeypatch.setattr(images, "_jpeg_decoder", lambda: decoder)
    assert difference(load_rgb(content), fast) <= 2


@pytest.mark.parametrize(
    "content, reason",
    [
        (b"", "empty"),
        (b"<html>404</html>", "no image format"),
        (half(encoded(picture(), "JPEG", quality=95)), "truncated"),
        (half(encoded(picture(), "PNG")), "truncated"),
    ],
)
def test_a_bad_file_is_named_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "bad.jpg"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=rf"(?i)bad\.jpg cannot be read .*{reason}"):
        load_rgb(path)
    with pytest.raises(ValueError, match=rf"(?i)image of {len(content)} bytes cannot be read .*{reason}"):
        load_rgb(content)


def test_a_missing_file_and_a_folder_are_named_too(tmp_path):
    with pytest.raises(ValueError, match="gone.png cannot be read as an image: No such file"):
        load_rgb(tmp_path / "gone.png")
    with pytest.raises(ValueError, match="cannot be read as an image: "):
        load_rgb(tmp_path)


def claiming(width, height):
    """A PNG of 2 x 2 whose header claims another size."""
    import zlib

    content = bytearray(encoded(Image.new("RGB", (2, 2)), "PNG"))
    content[16:24] = struct.pack(">II", width, height)
    content[29:33] = struct.pack(">I", zlib.crc32(content[12:29]))
    return bytes(content)


def test_a_header_that_claims_a_huge_image_is_refused_before_any_memory_is_asked_for():
    with pytest.raises(ValueError, match="exceeds limit"):
        load_rgb(claiming(60_000, 60_000))


def damaged(content, rng):
    content = bytearray(content)
    for _ in range(rng.randint(1, 12)):
        content[rng.randrange(len(content))] = rng.randrange(256)
    return bytes(content[: rng.choice([len(content), rng.randrange(len(content))])])


@pytest.mark.filterwarnings("ignore")  # Pillow warns of damage that it can read past
def test_300_damaged_images_are_read_or_refused_by_name():
    rng, outcomes = random.Random(0), {True: 0, False: 0}
    whole = [encoded(picture(), form) for form in ("JPEG", "PNG", "TIFF", "WEBP", "GIF")]
    whole += [with_orientation(picture(), "JPEG", 6)]
    for number in range(300):
        try:
            image = load_rgb(damaged(whole[number % len(whole)], rng))
            assert image.dtype == torch.uint8 and image.shape[0] == 3
            outcomes[True] += 1
        except ValueError as error:
            assert "cannot be read as an image" in str(error)
            outcomes[False] += 1
    assert min(outcomes.values()) > 30


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32])
@pytest.mark.parametrize("height, width, size", [(88, 104, 64), (20, 30, (64, 48)), (1, 9, (3, 1)), (64, 64, 64)])
def test_resize_gives_the_bits_of_v2_and_keeps_the_dtype(dtype, height, width, size):
    from torchvision.transforms import v2

    image = torch.randint(0, 256, (3, height, width), generator=torch.Generator().manual_seed(1)).to(dtype)
    both = (size, size) if isinstance(size, int) else size
    for layout in (image, image.permute(1, 2, 0).contiguous().permute(2, 0, 1)):  # as load_rgb gives a JPEG
        result = resize(layout, size)
        assert torch.equal(result, v2.Resize(both)(image)) and result.shape == (3, *both) and result.dtype == dtype


def test_resize_is_within_one_of_pillow():
    photo = picture().resize((104, 88))
    assert difference(resize(pixels(photo), (50, 60)), pixels(photo.resize((60, 50), Image.Resampling.BILINEAR))) <= 1


@pytest.mark.parametrize(
    "image, size",
    [
        (torch.zeros(2, 3, 4, 4), 2),
        (torch.zeros(3, 4, 4, dtype=torch.int32), 2),
        (picture(), 2),
        (torch.zeros(3, 4, 4), 0),
    ],
)
def test_resize_says_what_it_needs(image, size):
    with pytest.raises(ValueError, match=r"resize needs uint8 or float \(C, H, W\) and a size of 1 or more; got"):
        resize(image, size)


@pytest.mark.parametrize("value", [-9e-6, 0.0, 1.0, 1 + 9e-6])
def test_floats_beside_the_range_by_what_rounding_makes_are_in_it(value):
    check_unit_range(torch.full((1, 2, 2), value))


@pytest.mark.parametrize("value", [-2e-5, 1 + 2e-5, math.nan])
def test_floats_further_beside_the_range_and_nan_are_refused(value):
    with pytest.raises(ValueError, match="the photo: need uint8, or float in"):
        check_unit_range(torch.tensor([0.5, value]), name="the photo")


def test_without_pixels_floats_have_a_known_white_and_other_integers_have_none():
    check_unit_range(torch.zeros(0, 3, 2, 2))
    with pytest.raises(ValueError, match="got torch.int64 from 0 to 0"):
        check_unit_range(torch.zeros(0, 3, 2, 2, dtype=torch.int64))


@pytest.mark.parametrize("dtype", [torch.int64, torch.bool, torch.uint16])
def test_other_integers_have_no_known_white_even_between_0_and_1(dtype):
    with pytest.raises(ValueError, match=f"got {dtype} from 0 to 1"):
        check_unit_range(torch.tensor([0, 1]).to(dtype))
