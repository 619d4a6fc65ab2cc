"""The plan document: canonical JSON, digest, staleness and comparison of plans."""
