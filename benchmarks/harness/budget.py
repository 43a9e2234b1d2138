"""How long rounds are and how many there are, so that a run ends in the minutes it was given."""

from dataclasses import dataclass
from math import ceil, inf

ROUND_SECONDS = 0.4
"""Beside its load: wrk's start, and what the server still works on afterwards."""
START_SECONDS = 3.0
"""Of one side on one database, with the question whether it answers as the others do."""
ROUNDS = (5, 3, 2)
MIN_ANSWERS_PER_CONNECTION = 3
"""To each connection, at least, in a round: what is under way at its end is not counted, and would be most of what a slow side did."""
MAX_STRETCH = 4
"""The most by which a round is made longer for that."""
MIN_ROUND_SECONDS, MAX_ROUND_SECONDS = 2, 8
"""Seconds of a round: in shorter ones a slow side answers too little to be counted, longer ones make nothing steadier."""


class TooShortError(Exception):
    """The message says what the least is."""


@dataclass(frozen=True)
class RoundPlan:
    """Of each question to each side: seconds of a round that is not counted, and of how many that are."""

    warmup_seconds: float
    count: int
    seconds: float

    def cost(self) -> float:
        """Seconds for one question to one side."""
        return self.warmup_seconds + ROUND_SECONDS + self.count * (self.seconds + ROUND_SECONDS)


def stretch_round(seconds: float, per_second: float, connections: int) -> float:
    """The length of a round for a side that is so slow; 0 requests per second: nothing was answered yet."""
    needed_seconds = MIN_ANSWERS_PER_CONNECTION * connections / per_second if per_second else inf
    return float(min(max(seconds, ceil(min(needed_seconds, seconds * MAX_STRETCH))), seconds * MAX_STRETCH))


def fit_rounds(minutes: float, pairs: int, starts: int) -> RoundPlan:
    """The most load that so many questions to a side (`pairs`), and starts of a side, leave room for. Raises TooShortError."""
    each = (minutes * 60 - starts * START_SECONDS) / max(pairs, 1)
    possible = [
        RoundPlan(float(min(seconds, 3)), count, float(seconds))
        for count in ROUNDS
        for seconds in range(MAX_ROUND_SECONDS, MIN_ROUND_SECONDS - 1, -1)
    ]
    fitting = [rounds for rounds in possible if rounds.cost() <= each]
    if not fitting:
        min_minutes = (min(rounds.cost() for rounds in possible) * pairs + starts * START_SECONDS) / 60
        raise TooShortError(f"so much takes at least {min_minutes:.1f} minutes; ask for fewer --cases, --peers or one --database")
    # Of equally long ones the one with more rounds: a median of few says little.
    return max(fitting, key=lambda rounds: (rounds.count * rounds.seconds, rounds.count))
