"""Benchmarks: each number beside a floor that was measured in the same minutes."""
