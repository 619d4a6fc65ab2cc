"""The plan document: canonical bytes, digest, staleness and difference. Never clouds."""
