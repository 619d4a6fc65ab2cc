"""The Pulumi engine: the Automation API on a generic program, real clouds or simulated ones."""
