"""Tests of the course. `python course.py test` runs them all, the notebooks included."""
