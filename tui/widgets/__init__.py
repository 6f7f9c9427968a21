"""Small widgets, each of which shows one part of a `RunView`: `show(view)`."""
