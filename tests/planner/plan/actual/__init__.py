"""Tests of planner/plan/actual."""
