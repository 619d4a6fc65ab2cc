"""How much memory, how fast, how late: physics with its coefficients as data. Never price."""
