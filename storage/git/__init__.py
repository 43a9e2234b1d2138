"""Repositories: objects, refs, packs, merges and the git program."""
