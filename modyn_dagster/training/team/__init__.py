"""Communication of the ranks that train one model together."""
