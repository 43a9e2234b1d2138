"""Plans: an operation compiled once, and then only run.

`compiling.py` reads an operation against the schema and makes a plan of it; `running.py` runs one level by level, for all objects of a
level at once; `leaves.py` generates the code that turns objects into the answer. Whatever a plan cannot hold, and whatever goes wrong
while one runs, is left to graphql-core, which answers everything and is the oracle that the tests hold plans to.
"""
