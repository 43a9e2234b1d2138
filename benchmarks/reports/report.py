"""The tables that `scripts/bench` prints."""

from typing import Any

WIDTH = 66
Rows = list[dict[str, Any]]


def print_results(database: str, rows: Rows) -> None:
    print(f"\n{database}")
    _print_comparisons([row for row in rows if "ratio_cpu" in row])
    _print_ratios([row for row in rows if "times_ms" in row])
    for row in rows:
        if "alone" in row:
            print(f"{row['case']:{WIDTH}} {row['alone']['ms']:9.1f} ms {row['alone']['cpu_ms']:8.1f} CPU ms")
    for row in rows:
        if "cores" in row:
            print(f"{row['case']:{WIDTH}} {row['cores']:9.3f} of a core; the goal is {row['goal']}")
    for row in rows:
        if "statements" in row:
            found = ", ".join(f"{number} for {size}" for size, number in row["statements"].items())
            print(f"{row['case'] + ', SQL statements of ours':{WIDTH}} {found}")


def _print_comparisons(rows: Rows) -> None:
    if not rows:
        return
    print(f"{'':{WIDTH}} {'ours':>18} {'peer':>18} {'ratio':>14}")
    print(f"{'':{WIDTH}} {'req/s':>9} {'CPU ms':>8} {'req/s':>9} {'CPU ms':>8} {'req/s':>7} {'CPU':>6}")
    for row in rows:
        first, second = row.get("ours") or row["long"], row.get("peer") or row["short"]
        figures = f"{first['per_second']:9.0f} {first['cpu_ms']:8.2f} {second['per_second']:9.0f} {second['cpu_ms']:8.2f}"
        print(f"{row['case']:{WIDTH}} {figures} {row['ratio_per_second']:7.2f} {row['ratio_cpu']:6.2f}")


def _print_ratios(rows: Rows) -> None:
    if not rows:
        return
    print(f"{'':{WIDTH}} {'ours or many':>18} {'peer or few':>18} {'times':>14} {'goal':>6}")
    print(f"{'':{WIDTH}} {'ms':>9} {'CPU ms':>8} {'ms':>9} {'CPU ms':>8} {'ms':>7} {'CPU':>6}")
    for row in rows:
        first, second = row.get("ours") or row["many"], row.get("peer") or row["few"]
        figures = f"{first['ms']:9.1f} {first['cpu_ms']:8.1f} {second['ms']:9.1f} {second['cpu_ms']:8.1f}"
        print(f"{row['case']:{WIDTH}} {figures} {row['times_ms']:7.2f} {row['times_cpu']:6.2f} {row['goal']:6}")
