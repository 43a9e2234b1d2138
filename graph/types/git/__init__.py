"""GraphQL types of branches, commits, trees and comparisons."""
