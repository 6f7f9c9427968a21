"""What a root agent has done by processes that are nobody in particular: all that hears what databases and exporters say."""
