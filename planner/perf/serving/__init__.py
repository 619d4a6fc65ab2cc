"""Speed, latency and memory of replicas that serve a model."""
