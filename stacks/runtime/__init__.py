"""What runs on the machines of a stack."""
