"""A fourth cloud that stands in the test tree alone."""
