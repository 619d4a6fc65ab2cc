"""Kinds of workload behind one protocol. A new kind is one module here and one registry line."""
