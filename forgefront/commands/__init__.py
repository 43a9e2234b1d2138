"""The commands: a file for each noun, with its operations beside it."""

from forgefront import process_setup as process_setup
