"""Systems that proveout starts itself, and how two of them are linked, compared, saved and restored."""
