"""What runs on a node: bootstrap, the serving launch, and the agent that gives it back."""
