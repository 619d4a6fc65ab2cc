"""Tests of planner/plan."""
