"""Exercises: `check` an answer, ask for a `hint`, see the `answer` and the `wrong_answers`, look at your `progress`."""

from course_utils.exercises.machinery import answer, check, hint, progress, wrong_answers

__all__ = ["answer", "check", "hint", "progress", "wrong_answers"]
