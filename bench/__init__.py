"""Measurements: each row is a ratio against torch on the CPU, taken in the same run."""
