"""`faults:` of a ladder -> `plan.faults.Fault`s: the entries, and the rules between them."""
