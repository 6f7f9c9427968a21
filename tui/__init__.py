"""What people watch: the frozen RunView and its pure reduce (the Textual screens come on top of it)."""
