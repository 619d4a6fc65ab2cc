"""Simulated clouds with capacity, quota, prices, faults and a clock."""
