"""Measured figures: ratios of times (`python -m benchmarks`) and sweeps of trainings whose records a chapter reads.

Run from the repository root. `course_utils` knows nothing of this package, and no test asserts a time.
"""
