"""What the user asked for: the schema, the units, the one YAML reader, errors with positions."""
