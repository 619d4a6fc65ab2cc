"""What is asked of Amazon Web Services itself."""
