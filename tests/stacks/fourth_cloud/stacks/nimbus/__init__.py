"""Nimbus: from a stack to resources."""
