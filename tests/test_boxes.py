"""`boxes`: what happens to a box when its photo is mirrored, cut or put into a mosaic, worked out by hand."""

import pytest
import torch
from torchvision import tv_tensors
from torchvision.transforms import v2
from torchvision.transforms.v2 import functional

from course_utils.boxes import BoxedPhotos, join_at, mosaic, with_boxes
from course_utils.catalogue import make_catalogue, read_index
from course_utils.images import load_rgb
from course_utils.loaders import ResumableLoader, collate_boxes
from course_utils.randomness import BatchKey


def photo(value: int, *boxes: list[int], size: tuple[int, int] = (20, 30)):
    """One colour, (height, width); labels 0, 1, ... in the order of the boxes."""
    return with_boxes(torch.full((3, *size), value, dtype=torch.uint8), list(boxes), range(len(boxes)))


def numbers(target) -> list[list[float]]:
    return target["boxes"].tolist()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return make_catalogue(tmp_path_factory.mktemp("boxes") / "catalogue", num_products=10, seed=0)


def test_a_flip_moves_the_box_to_the_width_minus_x():
    image, target = v2.RandomHorizontalFlip(p=1.0)(*photo(0, [2, 3, 12, 9]))
    assert numbers(target) == [[30 - 12, 3, 30 - 2, 9]] and image.shape == (3, 20, 30)


def test_the_flipped_box_holds_the_same_pixels():
    image, target = photo(0, [2, 3, 12, 9])
    image[:, 3:9, 2:12] = 255
    image, target = v2.RandomHorizontalFlip(p=1.0)(image, target)
    x0, y0, x1, y1 = (int(number) for number in numbers(target)[0])
    assert image[:, y0:y1, x0:x1].eq(255).all() and image.eq(255).sum() == 3 * 6 * 10


def test_a_crop_clips_the_box_and_a_box_cut_to_nothing_goes_with_its_label():
    image, target = photo(0, [2, 3, 12, 9], [20, 10, 28, 18])
    cut = (
        functional.crop(image, 0, 5, 10, 10),
        {
            "boxes": functional.crop(target["boxes"], 0, 5, 10, 10),
            "labels": target["labels"],
        },
    )
    assert numbers(cut[1]) == [[0, 3, 7, 9], [10, 10, 10, 10]]  # the second is empty, and still there
    kept = v2.SanitizeBoundingBoxes()(*cut)[1]
    assert numbers(kept) == [[0, 3, 7, 9]] and kept["labels"].tolist() == [0]


def test_a_plain_tensor_of_boxes_stays_where_it_was_while_the_image_is_mirrored():
    image, target = photo(0, [2, 3, 12, 9])
    plain = {"boxes": target["boxes"].as_subclass(torch.Tensor), "labels": target["labels"]}
    assert numbers(v2.RandomHorizontalFlip(p=1.0)(image, plain)[1]) == [[2, 3, 12, 9]]


def test_with_boxes_states_format_and_size_and_takes_none():
    image, target = with_boxes(torch.zeros(3, 20, 30), [], [])
    assert target["boxes"].shape == (0, 4) and target["boxes"].canvas_size == (20, 30)
    assert target["boxes"].dtype == torch.float32 and target["labels"].dtype == torch.int64
    assert target["boxes"].format == tv_tensors.BoundingBoxFormat.XYXY and type(image) is tv_tensors.Image
    with pytest.raises(ValueError, match="1 boxes and 2 labels"):
        with_boxes(image, [[0, 0, 1, 1]], [0, 1])


def test_the_catalogue_as_boxed_photos_is_its_index(root):
    data, rows = BoxedPhotos(root), read_index(root)
    assert len(data) == len(rows) > 10 and len(data.classes) == 10
    for index in (0, len(rows) - 1):
        image, target = data[index]
        assert torch.equal(image, load_rgb(root / rows[index]["path"])) and type(image) is tv_tensors.Image
        assert numbers(target) == [rows[index]["box"]] and target["labels"].tolist() == [rows[index]["target"]]


def test_boxed_photos_name_the_classes_of_the_manifest_also_those_without_a_photo(tmp_path):
    data = BoxedPhotos(make_catalogue(tmp_path / "catalogue", num_products=2, seed=0))
    assert len(data.classes) == 10 and len({row["label"] for row in data.rows}) < 3
    assert all(data.classes[row["target"]] == row["label"] for row in data.rows)


def test_boxed_photos_go_through_the_loader_with_equal_bits_for_0_and_2_workers(root):
    cut = v2.Compose([v2.RandomResizedCrop(32, scale=(0.05, 0.5)), v2.SanitizeBoundingBoxes()])
    data = BoxedPhotos(root, cut)
    alone, workers = (
        list(ResumableLoader(data, batch_size=5, seed=3, collate_fn=collate_boxes, num_workers=number))
        for number in (0, 2)
    )
    assert len(alone) == len(workers) == -(-len(data) // 5)
    counts = [len(target["boxes"]) for _, targets in alone for target in targets]
    assert set(counts) == {0, 1}  # some boxes were cut away
    for (images, targets), (other_images, other_targets) in zip(alone, workers, strict=True):
        assert torch.equal(images, other_images) and images.shape[1:] == (3, 32, 32)
        assert list(map(numbers, targets)) == list(map(numbers, other_targets))


FOUR = [photo(value, [2, 3, 12, 9]) for value in (10, 20, 30, 40)]


def test_the_mosaic_around_a_point_by_hand():
    image, target = join_at(FOUR, 40, (16, 15), min_visible=0.25)  # photos are 30 wide, 20 high
    assert image[0, 0, 0] == 10 and image[0, 14, 15] == 10 and image[0, 14, 16] == 20
    assert image[0, 15, 15] == 30 and image[0, 15, 16] == 40 and image[0, 34, 39] == 40
    assert image[0, 35:].eq(114).all()  # 15 + 20: no photo reaches further down
    # the photos begin at (-14, -5), (16, -5), (-14, 15) and (16, 15): the boxes of the two on the left are outside
    assert numbers(target) == [[18, 0, 28, 4], [18, 18, 28, 24]]
    assert target["labels"].tolist() == [0, 0] and target["boxes"].canvas_size == (40, 40)


@pytest.mark.parametrize("min_visible, kept", [(0.0, 2), (0.66, 2), (0.67, 1), (1.0, 1)])
def test_a_box_in_a_mosaic_stays_from_a_share_of_its_area_on(min_visible, kept):
    _, target = join_at(FOUR, 40, (16, 15), min_visible=min_visible)  # 4 of the upper box's 6 rows are seen
    assert numbers(target) == [[18, 0, 28, 4], [18, 18, 28, 24]][-kept:] and len(target["labels"]) == kept


def test_boxes_over_the_right_and_lower_edge_are_clipped_and_each_kept_box_keeps_its_label():
    shape = torch.zeros(3, 20, 30, dtype=torch.uint8)
    four = [
        with_boxes(shape, [[0, 2, 10, 9], [20, 10, 28, 18]], [1, 2]),  # begins at (-14, 5): the first is outside
        with_boxes(shape, [[20, 10, 28, 18]], [3]),  # at (16, 5): half of it is outside
        with_boxes(shape, [[2, 3, 12, 9]], [4]),  # at (-14, 25): outside
        with_boxes(shape, [[22, 12, 30, 20], [2, 10, 10, 18]], [5, 6]),  # at (16, 25): 2 x 3 of 8 x 8, 8 x 5 of 8 x 8
    ]
    _, target = join_at(four, 40, (16, 25), min_visible=0.25)
    assert numbers(target) == [[6, 15, 14, 23], [36, 15, 40, 23], [18, 35, 26, 40]]
    assert target["labels"].tolist() == [2, 3, 6]


def test_a_quarter_of_a_boxs_area_is_enough_unless_told_otherwise():
    def smallest(**least):  # of all kept shares of a box of 10 x 6
        keys = [BatchKey(seed, 0, 0, [5, 6, 7, 8]) for seed in range(40)]
        made = [mosaic(FOUR, 40, key=key, **least)[1]["boxes"].as_subclass(torch.Tensor) for key in keys]
        x0, y0, x1, y1 = torch.cat(made).T
        return ((x1 - x0) * (y1 - y0) / 60).min()

    assert 0.25 <= smallest() < 0.4 and smallest(min_visible=0.8) >= 0.8 and smallest(min_visible=0.0) < 0.25


def test_a_mosaic_is_a_function_of_its_key_and_the_point_lies_in_the_middle_half():
    keys = [BatchKey(0, epoch, 0, [5, 6, 7, 8]) for epoch in range(40)]
    corners = []
    for key in keys:
        image, target = mosaic(FOUR, 40, key=key)
        assert torch.equal(image, mosaic(FOUR, 40, key=key)[0])
        first_column = (image[0] == 20) | (image[0] == 40)
        corners.append(int(first_column.any(0).float().argmax()))
    assert min(corners) >= 10 and max(corners) < 30 and len(set(corners)) > 10


def test_the_point_depends_on_the_seed_and_fills_the_middle_half_its_x_and_its_y_drawn_apart():
    points = []
    for seed in range(200):
        image = mosaic(FOUR, 40, key=BatchKey(seed, 0, 0, [5, 6, 7, 8]))[0][0]
        right, below = (image == 20) | (image == 40), (image == 30) | (image == 40)
        points.append((int(right.any(0).int().argmax()), int(below.any(1).int().argmax())))
    columns, rows = zip(*points, strict=True)
    assert set(columns) == set(rows) == set(range(10, 30)) and len(set(points)) > 100


def test_the_draw_belongs_to_the_first_example_and_no_generator_is_touched():
    before = torch.get_rng_state()
    one = mosaic(FOUR, 40, key=BatchKey(0, 0, 0, [5, 6, 7, 8]))[0]
    other = mosaic(FOUR, 40, key=BatchKey(0, 0, 64, [5, 1, 2, 3]))[0]
    assert torch.equal(one, other) and torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(one, mosaic(FOUR, 40, key=BatchKey(0, 0, 0, [5] * 4, [1] * 4))[0])


def test_a_mosaic_of_float_photos_stays_float_and_of_three_is_an_error():
    floats = [(functional.to_dtype(image, torch.float32, scale=True), target) for image, target in FOUR]
    image, _ = mosaic(floats, 40, key=BatchKey(0, 0, 0, [0, 1, 2, 3]))
    assert image.dtype == torch.float32 and image.eq(114 / 255).any()  # grey too
    torch.testing.assert_close(image, mosaic(FOUR, 40, key=BatchKey(0, 0, 0, [0, 1, 2, 3]))[0].float() / 255)
    with pytest.raises(ValueError, match="4 examples and their key, got 4 and 2"):
        mosaic(FOUR, 40, key=BatchKey(0, 0, 0, [0, 1]))
    with pytest.raises(ValueError, match="4 examples and their key, got 3 and 3"):
        mosaic(FOUR[:3], 40, key=BatchKey(0, 0, 0, [0, 1, 2]))
