"""A dataset for workers that start anew: they import this file, and not a test's own with all that it needs."""

import random

import numpy as np
import torch
from torch.utils.data import Dataset


class Noisy(Dataset):
    """Example i is (i, a draw of each of the three generators)."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        return torch.tensor([index, torch.rand(()), random.random(), np.random.rand()], dtype=torch.float64)
