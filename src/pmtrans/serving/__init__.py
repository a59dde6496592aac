"""A small web application around a trained model."""
