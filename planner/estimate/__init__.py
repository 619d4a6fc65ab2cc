"""What given configurations will do, one or a table of them, and what benchmarks teach."""
