"""The difference of two sides in every format: page, comment, table, and reports of code hosts."""
