"""The live experiments: one helper, and for each chapter a module that wires it to the chapter's functions."""

from course_utils.labs.background import BackgroundRun, Point
from course_utils.labs.knobs import choice, number
from course_utils.labs.live import Goal, LiveRun, Still

__all__ = ["BackgroundRun", "Goal", "LiveRun", "Point", "Still", "choice", "number"]
