"""What runs in a task: scan, stateless operators, shares, measurements, dead letters."""
