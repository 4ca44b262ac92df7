"""Reading of rows: requests cut into attempts, the pages they need, the columns they fill, and their results."""
