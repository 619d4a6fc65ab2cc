"""Microsoft Azure: from a stack to its resources."""
