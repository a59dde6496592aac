"""Unsupervised domain adaptation with vision transformers: two folders in, a model you can trust out."""

__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """``pmtrans.load``, imported when first asked for: ``pmtrans --help`` does not wait for torch."""
    if name == "load":
        from pmtrans.inference.predictor import load

        return load
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
