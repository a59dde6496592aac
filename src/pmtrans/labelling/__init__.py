"""Which target images to label, and the accuracy on the whole target from a few labels."""
