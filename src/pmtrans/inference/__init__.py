"""Use of a trained model: predictions and exports."""
