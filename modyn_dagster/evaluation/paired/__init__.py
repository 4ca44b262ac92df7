"""Tests of one model against another on the same samples, as pure functions: state in, state out, no files."""
