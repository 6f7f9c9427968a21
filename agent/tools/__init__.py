"""Outside programs that an agent runs as a load: argv in, numbers out."""
