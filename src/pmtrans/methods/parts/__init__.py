"""What several methods are built from: each part exists once."""
