"""Learns the coefficients from published measurements and says how far they can be trusted."""
