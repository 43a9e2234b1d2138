"""The commands: a file for each noun, with its operations beside it."""

import gc

# The half million objects loaded from here on live to the end of the process. Collecting garbage repeatedly while they are loaded was an
# eighth of the startup time.
gc.set_threshold(50_000, 5, 200)
