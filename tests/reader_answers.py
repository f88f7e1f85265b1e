"""What the checker says of a reader's answer, for the tests of each chapter's exercises."""

from course_utils.exercises import check


def judged(id, given):
    """(status, named mistake, all words) of the report on this answer."""
    report = check(id, given)
    return report.status, report.mistake, " ".join(report.lines)
