"""The number and the length of rounds, chosen so that a run fits into the given minutes."""

from dataclasses import dataclass
from math import ceil, inf

ROUND_SECONDS = 0.4
"""Seconds of a round beside its load: wrk's start, and the work that the server still does afterwards."""
START_SECONDS = 8.0
"""Seconds to start one side on one database, to compare its answers with those of the others, and to wait for its background work."""
ROUNDS = (5, 3, 2)
MIN_ANSWERS_PER_CONNECTION = 3
"""Minimum answers to each connection in a round: requests that run at its end are not counted, and would be most of a slow side's."""
MAX_STRETCH = 4
"""Maximum factor by which a round is made longer for that."""
MIN_ROUND_SECONDS, MAX_ROUND_SECONDS = 2, 8
"""Bounds of the seconds of a round: a slow side answers too few requests in a shorter one, and a longer one is not less noisy."""


class TooShortError(Exception):
    """The given minutes are too few; the message has the minimum."""


@dataclass(frozen=True)
class RoundPlan:
    """The rounds of each question to each side: seconds of one that is not counted, and number and seconds of those that are."""

    warmup_seconds: float
    count: int
    seconds: float

    def cost(self) -> float:
        """Seconds that one question to one side takes."""
        return self.warmup_seconds + ROUND_SECONDS + self.count * (self.seconds + ROUND_SECONDS)


def stretch_round(seconds: float, per_second: float, connections: int) -> float:
    """The seconds of a round for a side with this speed; 0 requests per second means that nothing was answered yet."""
    needed_seconds = MIN_ANSWERS_PER_CONNECTION * connections / per_second if per_second else inf
    return float(min(max(seconds, ceil(min(needed_seconds, seconds * MAX_STRETCH))), seconds * MAX_STRETCH))


def fit_rounds(minutes: float, pairs: int, starts: int) -> RoundPlan:
    """The plan with the most load that fits, for `pairs` of a side and a question and `starts` of servers. Raises TooShortError."""
    each = (minutes * 60 - starts * START_SECONDS) / max(pairs, 1)
    possible = [
        RoundPlan(float(min(seconds, 3)), count, float(seconds))
        for count in ROUNDS
        for seconds in range(MAX_ROUND_SECONDS, MIN_ROUND_SECONDS - 1, -1)
    ]
    fitting = [rounds for rounds in possible if rounds.cost() <= each]
    if not fitting:
        min_minutes = (min(rounds.cost() for rounds in possible) * pairs + starts * START_SECONDS) / 60
        raise TooShortError(f"this takes at least {min_minutes:.1f} minutes; choose fewer --cases, fewer --peers or one --database")
    # Of plans with the same load, the one with more rounds: a median of few is not reliable.
    return max(fitting, key=lambda rounds: (rounds.count * rounds.seconds, rounds.count))
