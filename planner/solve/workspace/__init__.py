"""The cheapest machine on which a person can work with a model."""
