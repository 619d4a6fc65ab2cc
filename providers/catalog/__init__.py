"""The embedded snapshot of offers and prices: dated, hashed, validated row by row."""
