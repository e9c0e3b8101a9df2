"""StreamCloud's evaluation (sections VI and X) on this machine, figure by figure.

A figure is measured by one function, which returns a `Result`; drawing and pages are apart.
"""
