"""Tests of GraphQL over HTTP."""
