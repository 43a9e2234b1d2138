"""issues."""
