"""The spec: its schema, units, YAML reader and errors with positions."""
