"""The embedded snapshot of offers and prices, with a date, digests and checked rows."""
