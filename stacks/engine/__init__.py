"""What carries a graph out: the protocol, the simulated engine, and Pulumi."""
