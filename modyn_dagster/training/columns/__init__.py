"""Encodings of columns: choice by name, dtype and pattern, vocabularies, imputation, and their fit to a training set."""
