"""How a type declares its fields: columns, relations, connections, mutations, scalars."""

from graph.fields.shared_methods import share_methods

# Before the first type is declared; every module that declares one imports from this package.
share_methods()
