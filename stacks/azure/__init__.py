"""Microsoft Azure: from a site to resources."""
