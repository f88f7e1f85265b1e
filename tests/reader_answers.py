"""What the checker says of a reader's answer, for the tests of each chapter's exercises."""

import ast

from course_utils.exercises import check


def judged(id, given):
    """(status, named mistake, all words) of the report on this answer."""
    report = check(id, given)
    return report.status, report.mistake, " ".join(report.lines)


def lines_in_hints(exercise, *, longer_than):
    """The lines of the answer, without its head and its task, that a hint holds."""
    (definition,) = [node for node in ast.parse(exercise.source).body if isinstance(node, ast.FunctionDef)]
    lines = [line.strip() for line in exercise.source.splitlines()[definition.body[1].lineno - 1 :]]
    lines = [line for line in lines if len(line) > longer_than]
    assert lines
    return [line for line in lines if any(line in text for text in exercise.hints)]
