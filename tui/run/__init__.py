"""The screen of one run: its view model, event sources and dialogs."""
