"""The run folder: what is in it, how it is written, who may write it."""
