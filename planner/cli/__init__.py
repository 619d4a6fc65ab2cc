"""The commands: parse, call one function, render, return an exit code. Nothing imports this."""
