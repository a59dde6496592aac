"""The demo's two domains: digits printed and digits written by hand."""
