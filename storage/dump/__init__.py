"""Dumps of a whole instance: one tar file with the rows of one moment and the files that they name, and its restoration."""
