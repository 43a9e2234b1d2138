"""Projects and what belongs to nothing else in them."""
