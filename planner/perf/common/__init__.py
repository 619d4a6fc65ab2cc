"""What serving and training share: layouts, constants, coefficient tables, memory of weights."""
