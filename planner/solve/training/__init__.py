"""The cheapest cluster that trains a model in time, or the fastest within a budget."""
