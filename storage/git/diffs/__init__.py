"""Differences between trees and between files."""
