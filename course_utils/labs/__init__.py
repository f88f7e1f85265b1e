"""The live experiments: what they share, and for each chapter a module that wires it to the chapter's functions."""

from course_utils.labs.background import BackgroundRun, Point
from course_utils.labs.bench import Bench
from course_utils.labs.knobs import choice, number, switch
from course_utils.labs.live import LiveRun
from course_utils.labs.panel import Goal, Still

__all__ = ["BackgroundRun", "Bench", "Goal", "LiveRun", "Point", "Still", "choice", "number", "switch"]
