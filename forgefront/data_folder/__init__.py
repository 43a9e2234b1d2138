"""The data folder: who may use it, what is in it, and whether it is sound."""
