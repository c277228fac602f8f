"""Benchmarks: each number is compared with a baseline measured in the same run."""
