"""Tests of statistics of builds."""
