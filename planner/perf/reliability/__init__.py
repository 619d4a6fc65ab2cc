"""Failures, spot reclaims and checkpoints: goodput by formula and by simulated runs."""
