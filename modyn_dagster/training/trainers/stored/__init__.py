"""Files of fitted models without pickle: archives of skops, graphs of Python objects, and the search for pickles."""
