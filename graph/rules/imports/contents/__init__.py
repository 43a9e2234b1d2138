"""What an import writes into a project."""
