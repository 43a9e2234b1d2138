"""What runs the scripts of builds: a plain shell, a bubblewrap sandbox, or containers.

An executor opens a `Session` for a build. The session runs its scripts one after the other, with the same folders, and leaves no
process behind.
"""
