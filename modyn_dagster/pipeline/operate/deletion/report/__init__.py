"""Report of an executed deletion: fingerprints of the samples, a scan for their bytes, a signed statement, its verification."""
