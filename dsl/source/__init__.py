"""YAML files -> nodes with positions: loading, includes, extends; inventories of Ansible."""
