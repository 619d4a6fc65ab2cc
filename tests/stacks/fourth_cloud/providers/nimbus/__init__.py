"""What is asked of Nimbus itself."""
