"""Amazon Web Services: from a site to resources."""
