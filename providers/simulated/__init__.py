"""The mocked clouds: capacity, quota, prices, faults and a clock."""
