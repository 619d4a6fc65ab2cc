"""Google Cloud: from a site to resources."""
