"""Nimbus as a machine sees it: what a stack is given of it is not run here."""
