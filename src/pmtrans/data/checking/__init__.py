"""What is wrong with two domains, before the first step."""
