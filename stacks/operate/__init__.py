"""What people do with a standing stack: bring files to its bucket, and take results from it."""
