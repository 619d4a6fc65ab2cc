"""What failures and reclaims cost in time: hazards, checkpoints, goodput, simulated runs."""
