"""Unsupervised domain adaptation with vision transformers: two folders in, a model you can trust out."""

__version__ = "0.1.0"
