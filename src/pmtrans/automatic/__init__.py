"""``pmtrans auto``: within a time budget, the strongest methods from one source stage, and the best of them shipped."""
