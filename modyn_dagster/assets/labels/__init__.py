"""The asset ``<dataset>/labels`` of datasets whose labels arrive later."""
