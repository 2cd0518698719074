"""Augmentations of single examples and of batches; every random choice takes a generator or a seed."""
