"""``--dry-run``: what a run will need, measured by a few real steps."""
