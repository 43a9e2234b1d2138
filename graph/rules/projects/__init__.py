"""Rules of projects, forks, snippets and uploads."""
