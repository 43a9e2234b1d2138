"""The rows and repositories that the benchmarks read."""
