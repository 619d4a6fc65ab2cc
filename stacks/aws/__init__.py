"""Amazon Web Services: from a stack to its resources."""
