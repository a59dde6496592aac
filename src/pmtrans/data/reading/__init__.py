"""Point at images, get a domain: class folders, lists, tables, Hugging Face datasets."""
