"""What a run may spend (`dream.max_calls`, `max_tokens`, `max_usd`), and all runs of a day (`max_tokens_per_day`,
`max_usd_per_day`), and what was spent. Pure.

Before a call the most that it can cost is set aside; if that does not fit, the call is not made. After it, what it really cost
takes that place, or, where nobody says (a time-out, a reply cut off), the most stays. So no run spends more than it may, as far
as the one who bills counts as we do.

The most: no tokenizer makes more tokens of a text than it has bytes. The likely number, for estimates and for cutting: one token
for four ASCII signs, one for two bytes of anything else. (English is near that; code and numbers are up to a third above.)
"""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.dream.backends.api import Usage
from dreamkeep.errors import OverBudget

#: What a vendor adds to a request by itself: a chat's frame, its own words about tools.
HIDDEN_TOKENS = 1024


def estimate(text: str) -> int:
    size = len(text.encode("utf-8", "surrogatepass"))
    if size == len(text):
        return -(-size // 4)
    ascii_size = len(text.encode("ascii", "ignore"))
    return -(-ascii_size // 4) + -(-(size - ascii_size) // 2)


class Prices(NamedTuple):
    """USD for a million tokens."""

    input: float = 0.0
    output: float = 0.0

    def of(self, tokens_in: int, tokens_out: int) -> float:
        return (tokens_in * self.input + tokens_out * self.output) / 1e6


class DayLimit(NamedTuple):
    """What all runs of a day may spend; None: no limit. `spent`: by the runs of the last 24 hours."""

    tokens: int | None = None
    usd: float | None = None
    spent: Usage = Usage()

    def lack(self, total: Usage) -> str | None:
        if self.tokens is not None and total.tokens_in + total.tokens_out > self.tokens:
            return "dream.max_tokens_per_day"
        return "dream.max_usd_per_day" if self.usd is not None and total.usd > self.usd + 1e-9 else None


_ANY_DAY = DayLimit()


class TokenBudget:
    """None: no limit. `spent` is the run's ledger."""

    def __init__(
        self, calls: int | None = None, tokens: int | None = None, usd: float | None = None, day: DayLimit = _ANY_DAY
    ) -> None:
        self._calls, self._tokens, self._usd, self._day = calls, tokens, usd, day
        self.spent = Usage()

    @property
    def limits_money(self) -> bool:
        return self._usd is not None or self._day.usd is not None

    def lacks_today(self, least: Usage) -> str | None:
        """Which setting leaves no room today for even so much."""
        return self._day.lack(self._day.spent.plus(least))

    def lacks_ever(self, least: Usage) -> str | None:
        """Which limit of a day would leave no room for so much on any day."""
        return self._day.lack(least)

    def set_aside(self, most: Usage) -> None:
        """Before a call; raises when it may not be made."""
        lack = self.lack(self.spent.plus(most)) or self._day.lack(self._day.spent.plus(self.spent).plus(most))
        if lack is not None:
            never = (self.lack(most) or self._day.lack(most)) is not None
            problem = OverBudget(
                f"one more call may cost more than {lack} allows",
                where=f"{self.spent.calls} calls, {self.spent.tokens_in + self.spent.tokens_out} tokens spent",
                next=f"Raise `{lack}`" + (": not even one call fits." if never else ", or let the next run continue from here."),
            )
            problem.never, problem.today = never, lack.endswith("_per_day")
            raise problem
        self.spent = self.spent.plus(most)

    def settle(self, most: Usage, real: Usage) -> None:
        """After a call: what it cost takes the place of what was set aside."""
        back = Usage(-most.calls, -most.tokens_in, -most.tokens_out, -most.usd)
        self.spent = self.spent.plus(back).plus(real)

    def lack(self, total: Usage) -> str | None:
        """Which setting does not allow so much; None if all do."""
        if self._calls is not None and total.calls > self._calls:
            return "dream.max_calls"
        if self._tokens is not None and total.tokens_in + total.tokens_out > self._tokens:
            return "dream.max_tokens"
        # Sums of prices are not exact: a billionth of a dollar is nobody's overdraft.
        if self._usd is not None and total.usd > self._usd + 1e-9:
            return "dream.max_usd"
        return None
