"""Comments in the pull requests of code hosts."""
