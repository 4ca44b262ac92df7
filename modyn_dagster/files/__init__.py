"""Files of state: in the home folder, or in an object store with copies on each node."""
