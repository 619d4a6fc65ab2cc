"""Tests of planner/plan/policy."""
