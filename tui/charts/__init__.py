"""Charts of the run screen: scales, a canvas of braille dots, and the pictures that are drawn on it."""
