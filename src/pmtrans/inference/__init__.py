"""From a run to use: the model folder, predictions, exports."""
