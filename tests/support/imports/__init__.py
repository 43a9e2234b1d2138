"""Sources of imports."""
