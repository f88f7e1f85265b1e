"""The embedded data: a class-balanced part of Fashion-MNIST, the reference model's weights, and the scripts that remake
them.

`fashion_part.npz` holds uint8 `train_images` (10000, 28, 28), `train_labels` (10000,), `test_images` (2000, 28, 28) and
`test_labels` (2000,). `course_utils.datasets.load_fashion` reads it; NOTICE says where it comes from.
`reference_model.npz` holds the weights, `reference_model.json` how they were made; `course_utils.reference_model` reads
both.
"""

from pathlib import Path

FASHION_PART = Path(__file__).with_name("fashion_part.npz")
REFERENCE_MODEL = Path(__file__).with_name("reference_model.npz")
