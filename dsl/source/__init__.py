"""YAML files -> nodes with positions: loading, includes, extends, substitution."""
