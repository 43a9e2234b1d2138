"""The report and the chart of `scripts/bench table`."""
