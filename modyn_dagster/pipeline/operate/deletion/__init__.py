"""Deletion requests: lineage of samples, the plan of a deletion, its execution, and the document it leaves."""
