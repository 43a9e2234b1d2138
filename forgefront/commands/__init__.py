"""What the command line offers: a file a noun, its operations beside it."""
