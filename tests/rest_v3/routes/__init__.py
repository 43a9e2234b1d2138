"""Tests of the routes, one module for each resource."""
