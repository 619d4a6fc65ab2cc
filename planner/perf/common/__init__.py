"""Code shared by serving and training: layouts, constants, coefficients, weights."""
