"""Which layouts, which offers, how many, bought how: search and explanation. Never rendering."""
