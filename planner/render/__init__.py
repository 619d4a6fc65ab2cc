"""Pages, tables and JSON of plans, predictions and stacks."""
