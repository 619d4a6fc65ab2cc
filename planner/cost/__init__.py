"""Bill lines, service prices, energy and paid hours; independent of performance."""
