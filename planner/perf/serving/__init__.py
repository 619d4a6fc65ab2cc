"""How fast and how large a replica is that serves a model: work, step, load, latency, memory."""
