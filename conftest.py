"""Loaded for `tests` and `notebooks` alike: each shipped notebook is a test, compared strictly."""
pytest_plugins = ["tests.nbval_strict"]
