"""Rules of notes, mentions and system notes."""
