"""What is asked of Google Cloud itself."""
