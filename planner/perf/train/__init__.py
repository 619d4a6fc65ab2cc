"""Training: memory, step time and layouts of one job."""
