"""The effect of faults on loads. Pure."""
