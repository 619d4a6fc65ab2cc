"""Step time, lower bound, memory and parallel layouts of training."""
