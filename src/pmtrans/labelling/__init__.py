"""Which images to label by hand, and what a few labels say about all."""
