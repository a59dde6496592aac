"""New images as they arrive: predicted once each, and tested for drift against the target of the run."""
