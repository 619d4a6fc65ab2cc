"""The cheapest fleet of replicas that serves a model within its limits."""
