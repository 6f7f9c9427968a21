"""Figures of ladders, searches and matrices as a whole: scaling, probes, factors between cells."""
