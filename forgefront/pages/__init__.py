"""Pages for people, and the door that serves static files."""
