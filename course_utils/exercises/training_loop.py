"""Exercises of chapter 05; each stands in a module of its own.

Order of the numbers: one epoch, evaluation mode, the classes, the best model, the checks before a run, the stop.
"""

from __future__ import annotations

from course_utils.exercises.training_loop_best import keep_best
from course_utils.exercises.training_loop_checks import find_faults
from course_utils.exercises.training_loop_classes import class_measures
from course_utils.exercises.training_loop_epoch import train_one_epoch
from course_utils.exercises.training_loop_modes import evaluating
from course_utils.exercises.training_loop_stopping import stop_early

__all__ = ["class_measures", "evaluating", "find_faults", "keep_best", "stop_early", "train_one_epoch"]
