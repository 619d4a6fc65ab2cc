"""Models, accelerators and clouds as rows with unit, source and date, and as types."""
