"""The mocked clouds: capacity, quota, prices, faults and a clock. As carefully kept as real ones."""
