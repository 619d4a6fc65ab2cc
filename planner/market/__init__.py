"""Offers of machines: regions, purchase options, prices, and rules of a spec."""
