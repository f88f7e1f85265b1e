"""`datasets`: the embedded part, and batches as a function of their key."""

import hashlib
import random

import numpy as np
import pytest
import torch

from course_utils.data.make_fashion_part import first_of_each_class, read_idx
from course_utils.datasets import FASHION_CLASSES, ArrayDataset, load_fashion
from course_utils.randomness import BatchKey

DIGESTS = {  # of the bytes of images (N, 28, 28) and of labels, both uint8; from the official files
    "train": ("e1427044c614fabc", "2c02745d4ad8b451"),
    "test": ("96315b1732ab731e", "b2095bc797d1201e"),
}


def digest(values: torch.Tensor) -> str:
    return hashlib.sha256(values.to(torch.uint8).numpy().tobytes()).hexdigest()[:16]


def tiny(num_examples: int = 12, **transforms) -> ArrayDataset:
    images = torch.arange(num_examples * 2 * 4 * 4, dtype=torch.int64).remainder(251).to(torch.uint8)
    targets = torch.arange(num_examples) % 3
    return ArrayDataset(images.reshape(num_examples, 2, 4, 4), targets, classes=["a", "b", "c"], **transforms)


def noisy(image: torch.Tensor) -> torch.Tensor:
    """Draws from all three generators."""
    return image + torch.rand(1) + random.random() + float(np.random.rand())


def drawn(images: torch.Tensor, targets: torch.Tensor, key: BatchKey) -> tuple[torch.Tensor, torch.Tensor]:
    """A batch transform that draws from the global generator, as MixUp does, and gives soft targets."""
    return images + torch.rand(1), torch.nn.functional.one_hot(targets, 3).float()


@pytest.mark.parametrize("split, per_class", [("train", 1000), ("test", 200)])
def test_the_embedded_part_is_the_official_data_bit_by_bit(split, per_class):
    data = load_fashion(split)
    assert (digest(data.images), digest(data.targets)) == DIGESTS[split]
    assert data.images.shape == (10 * per_class, 1, 28, 28) and data.images.dtype == torch.uint8
    assert data.targets.bincount().tolist() == [per_class] * 10 and data.targets.dtype == torch.int64
    assert data.classes == FASHION_CLASSES


def test_an_item_is_an_image_and_an_int():
    image, target = load_fashion("test")[0]
    assert image.shape == (1, 28, 28) and image.dtype == torch.uint8
    assert type(target) is int and FASHION_CLASSES[target] == "Ankle boot"


def test_no_image_of_the_test_part_is_in_the_training_part():
    train, test = ({image.tobytes() for image in load_fashion(split).images.numpy()} for split in ("train", "test"))
    assert len(train) == 10_000 and len(test) == 2_000 and not train & test


def test_another_split_is_refused_with_what_was_given():
    with pytest.raises(ValueError, match='"train" or "test", got \'val\''):
        load_fashion("val")


def test_the_part_is_the_first_of_each_class_in_file_order():
    labels = np.array([1, 0, 1, 2, 1, 0, 0, *range(3, 10)])
    assert first_of_each_class(labels, 2).tolist() == [0, 1, 2, 3, 5, *range(7, 14)]


def write_idx(path, values: np.ndarray) -> None:
    header = b"\x00\x00\x08" + bytes([values.ndim]) + b"".join(side.to_bytes(4, "big") for side in values.shape)
    path.write_bytes(header + values.tobytes())


def test_idx_files_are_read_in_the_shape_they_state_and_a_cut_one_is_named(tmp_path):
    import gzip

    values = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
    write_idx(tmp_path / "raw", values)
    content = (tmp_path / "raw").read_bytes()
    (tmp_path / "whole.gz").write_bytes(gzip.compress(content))
    (tmp_path / "cut.gz").write_bytes(gzip.compress(content[:-1]))
    assert np.array_equal(read_idx(tmp_path / "whole.gz"), values)
    with pytest.raises(ValueError, match=r"cut\.gz.*\(2, 3, 4\).*23 bytes"):
        read_idx(tmp_path / "cut.gz")


def test_the_full_set_is_read_from_a_folder_that_is_there(tmp_path):
    raw = tmp_path / "FashionMNIST" / "raw"
    raw.mkdir(parents=True)
    images = np.random.default_rng(0).integers(0, 256, (6, 28, 28), dtype=np.uint8)
    for stem in ("train", "t10k"):
        write_idx(raw / f"{stem}-images-idx3-ubyte", images)
        write_idx(raw / f"{stem}-labels-idx1-ubyte", np.arange(6, dtype=np.uint8))
    data = load_fashion("train", full=True, root=tmp_path)
    assert torch.equal(data.images, torch.from_numpy(images).unsqueeze(1))
    assert data.targets.tolist() == list(range(6))


def test_without_folder_and_network_the_full_set_says_what_to_do(tmp_path, monkeypatch):
    from torchvision.datasets import FashionMNIST

    monkeypatch.setattr(FashionMNIST, "mirrors", ["http://127.0.0.1:9/"])
    monkeypatch.setenv("COURSE_DATA", str(tmp_path))
    with pytest.raises(ConnectionError, match=r"raw.*could not be downloaded.*full=False"):
        load_fashion("test", full=True)


@pytest.mark.parametrize("index", [12, -1, 10**9])
def test_an_index_out_of_range_names_itself_and_the_range(index):
    data = tiny()
    for read in (data.__getitem__, lambda i: data.__getitems__([0, i]), lambda i: data.take(BatchKey(0, 0, 0, [0, i]))):
        with pytest.raises(IndexError, match=rf"0 \.\. 11 \(12 examples\), got {index}"):
            read(index)


def test_a_dataset_ends_like_a_list():
    assert [target for _, target in tiny(4)] == [0, 1, 2, 0]


@pytest.mark.parametrize(
    "targets, message",
    [
        ([0, 1], r"shape \(3,\); got \(2,\)"),
        ([[0], [1], [2]], r"shape \(3,\); got \(3, 1\)"),
        ([0.0, 1.0, 2.0], "integers.*float32"),
        ([0, 1, 3], r"0 \.\. 2 \(3 classes\), got 3 at 2"),
        ([0, -1, 2], "got -1 at 1"),
    ],
)
def test_targets_that_do_not_fit_are_refused(targets, message):
    with pytest.raises(ValueError, match=message):
        ArrayDataset(torch.zeros(3, 1, 2, 2), targets, classes="abc")


def test_getitems_gives_the_examples_in_the_order_asked_for():
    data = tiny()
    examples = data.__getitems__([5, 0, 5])
    assert [target for _, target in examples] == [2, 0, 2]
    assert torch.equal(examples[0][0], data.images[5]) and torch.equal(examples[1][0], data.images[0])


def test_without_transforms_take_gives_rows():
    data, key = tiny(), BatchKey(0, 0, 0, [7, 2])
    images, targets = data.take(key)
    assert torch.equal(images, data.images[[7, 2]]) and targets.tolist() == [1, 2]


def test_an_example_has_the_same_pixels_in_every_batch():
    data = tiny(transform=noisy)
    whole, _ = data.take(BatchKey(3, 1, 0, list(range(12))))
    for indices in ([4], [9, 4, 0], [4, 5, 6, 7]):
        images, _ = data.take(BatchKey(3, 1, 8, indices))
        assert torch.equal(images, whole[indices])


def test_seed_epoch_and_repeat_each_give_other_pixels():
    data = tiny(transform=noisy)
    keys = [BatchKey(3, 1, 0, [4]), BatchKey(4, 1, 0, [4]), BatchKey(3, 2, 0, [4]), BatchKey(3, 1, 0, [4], [1])]
    pixels = [data.take(key)[0] for key in keys]
    assert len({image.numpy().tobytes() for image in pixels}) == 4
    assert torch.equal(data.take(keys[0])[0], pixels[0])


def test_each_of_the_three_generators_is_keyed():
    for draw in (
        lambda: torch.rand(1),
        lambda: torch.tensor([random.random()]),
        lambda: torch.tensor(np.random.rand(1)),
    ):
        data = tiny(transform=lambda image, draw=draw: image + draw())
        first, again = (data.take(BatchKey(0, 0, 0, [1, 2]))[0] for _ in range(2))
        assert torch.equal(first, again)
        assert not torch.equal(first[0] - data.images[1], first[1] - data.images[2])


def global_states() -> tuple:
    return torch.get_rng_state().tolist(), random.getstate(), np.random.get_state()[1].tolist()


def failing(images: torch.Tensor, targets: torch.Tensor, key: BatchKey):
    raise RuntimeError("planted")


def test_take_leaves_the_global_generators_as_they_were_also_on_an_exception():
    before = global_states()
    tiny(transform=noisy, batch_transform=drawn).take(BatchKey(0, 0, 0, [1, 2]))
    with pytest.raises(RuntimeError, match="planted"):
        tiny(batch_transform=failing).take(BatchKey(0, 0, 0, [1]))
    assert global_states() == before


def test_what_a_batch_transform_draws_is_a_function_of_seed_epoch_and_start():
    data = tiny(batch_transform=drawn)
    first, soft = data.take(BatchKey(0, 0, 8, [1]))
    assert soft.tolist() == [[0.0, 1.0, 0.0]]
    assert torch.equal(data.take(BatchKey(0, 0, 8, [1]))[0], first)
    for other in (BatchKey(1, 0, 8, [1]), BatchKey(0, 1, 8, [1]), BatchKey(0, 0, 9, [1])):
        assert not torch.equal(data.take(other)[0], first)


def test_a_keyed_batch_transform_runs_without_touching_a_generator(monkeypatch):
    def scaled(images, targets, key):
        return images / 255, targets

    scaled.keyed = True
    monkeypatch.setattr("course_utils.datasets.seed_generators", lambda seed: pytest.fail("a generator was seeded"))
    images, _ = tiny(batch_transform=scaled).take(BatchKey(0, 0, 0, [3]))
    assert torch.equal(images, tiny().images[[3]] / 255)


@pytest.mark.parametrize("transforms", [{}, {"transform": noisy}, {"transform": noisy, "batch_transform": drawn}])
def test_an_empty_key_gives_an_empty_batch_of_the_usual_shape_and_dtype(transforms):
    data = tiny(**transforms)
    full, empty = data.take(BatchKey(0, 0, 0, [0, 1])), data.take(BatchKey(0, 0, 0, []))
    for one, other in zip(full, empty, strict=True):
        assert len(other) == 0 and other.shape[1:] == one.shape[1:] and other.dtype == one.dtype


def test_an_empty_dataset_has_an_empty_batch():
    images, targets = ArrayDataset(torch.zeros(0, 1, 2, 2), [], classes="ab").take(BatchKey(0, 0, 0, []))
    assert images.shape == (0, 1, 2, 2) and targets.shape == (0,) and targets.dtype == torch.int64


def test_importing_datasets_and_transforms_imports_no_torchvision_matplotlib_or_pillow(fresh_python):
    code = "import sys, course_utils.transforms; print(sorted({'torchvision', 'matplotlib', 'PIL'} & set(sys.modules)))"
    assert fresh_python.run(code).stdout.strip() == "[]"
