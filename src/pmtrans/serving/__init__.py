"""A trained model behind HTTP: a JSON API and a page to drop images on."""
