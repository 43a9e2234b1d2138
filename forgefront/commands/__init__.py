"""What the command line offers: a file a noun, its operations beside it."""

import gc

# What is loaded from here on stays to the end, and is half a million objects: looking through it again and again while it comes was an
# eighth of what a start takes.
gc.set_threshold(50_000, 5, 200)
