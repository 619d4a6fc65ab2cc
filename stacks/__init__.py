"""What we change: from a solution to resources, and from resources to a running stack."""
