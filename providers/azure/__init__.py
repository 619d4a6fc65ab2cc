"""What is asked of Microsoft Azure itself."""
