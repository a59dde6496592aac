"""A trained model as a file for other runtimes, checked against the original model."""
