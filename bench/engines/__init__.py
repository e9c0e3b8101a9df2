"""The engines under test, one module each; `engine_main` runs one of them per process."""
