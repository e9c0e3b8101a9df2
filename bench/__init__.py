"""Side-by-side benchmarks: the same rows, the same windows, outputs compared row by row."""
