"""How a type declares its fields: columns, relations, connections, mutations, scalars."""
