"""The first screen of a page: the outcome in a sentence, and pictures of the verdicts' claims."""
