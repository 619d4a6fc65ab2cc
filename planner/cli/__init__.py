"""Commands of the program: parse, call, render, exit. No package imports it."""
