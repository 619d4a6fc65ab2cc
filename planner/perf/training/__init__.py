"""How fast and how large a training step is: work, step, lower bound, memory, layouts."""
