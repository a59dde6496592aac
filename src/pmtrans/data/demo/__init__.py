"""The demo's two domains: printed and handwritten digits."""
