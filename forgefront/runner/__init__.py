"""The included runner: takes builds from a service, runs their scripts in a sandbox, a container or a shell, and reports the results.

It is a separate program, on this machine or another: it calls `/graphql`, fetches with git, and uploads artifacts to the URLs it receives.
"""
