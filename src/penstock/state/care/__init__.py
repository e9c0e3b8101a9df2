"""Care for checkpoints: what is there, whether it is sound, and how to mend it."""
