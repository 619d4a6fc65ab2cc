"""What tonnage promises when processes die, clouds refuse and people work side by side."""
