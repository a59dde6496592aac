"""Checks of two domains before training."""
