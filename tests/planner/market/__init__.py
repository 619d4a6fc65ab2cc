"""Tests of planner/market."""
