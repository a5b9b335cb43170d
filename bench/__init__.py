"""Measurements: python -m bench [row ...]."""
