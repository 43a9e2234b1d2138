"""The demo: builds a forge with sample content from a real history."""
