"""The pure state machine of a run: inputs in, commands out."""
