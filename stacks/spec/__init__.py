"""What a stack is built from: what its fleets share, and the machines of each."""
