"""The runner in the box: takes builds from a service, runs their scripts in a shell, and says how they went.

It is a program beside the service, on this machine or another: it speaks to it through `/graphql`, fetches with git, and sends artifacts
where it is told to.
"""
