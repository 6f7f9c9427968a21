"""Helper processes without privileges, in which a root agent runs everything that reads data from databases and exporters."""
