"""Models and accelerators as rows with unit, source and date, and as types."""
