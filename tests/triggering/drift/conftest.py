"""Tests against other libraries are collected where these are installed, as `make set-up` does."""

from importlib.util import find_spec

_BACKENDS = {"test_alibi.py": "alibi_detect", "test_evidently.py": "evidently"}
collect_ignore = [test for test, library in _BACKENDS.items() if find_spec(library) is None]
