"""Google Cloud: from a stack to its resources."""
