"""``modyn-dagster init``: a new project, from a file of the user or from a template with a stream of its own.

``templates`` holds the files as they are written, in a folder per template. A file ``*.template`` has ``@NAME@`` and the like,
which stand for values; all others are copied. They are data of the package: only the generators of the streams run here.
"""
