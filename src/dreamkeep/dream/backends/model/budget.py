"""The spending of a run (`dream.max_calls`, `max_tokens`, `max_usd`) and of all runs of a day (`max_tokens_per_day`,
`max_usd_per_day`), and its limits. Pure.

Before a call, the most that it can cost is reserved; if that is over a limit, the call is not made. After the call its real cost
replaces the reservation. If the cost is unknown (a time-out, a reply that was cut off), the reservation stays. So no run spends
more than allowed, provided that the vendor counts as we do.

The most: no tokenizer makes more tokens of a text than it has bytes. The likely number, for estimates and for splitting: one
token for four ASCII characters, and one for two bytes of anything else. (English is near that; code and numbers are up to a third
above.)
"""

from __future__ import annotations

from typing import NamedTuple

from dreamkeep.dream.backends.api import Usage
from dreamkeep.errors import OverBudget

#: What a vendor adds to a request: the chat template, its own instructions about tools.
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
    """Limits for all runs of a day; None is no limit. `spent`: what the runs of the last 24 hours spent."""

    tokens: int | None = None
    usd: float | None = None
    spent: Usage = Usage()

    def lack(self, total: Usage) -> str | None:
        if self.tokens is not None and total.tokens_in + total.tokens_out > self.tokens:
            return "dream.max_tokens_per_day"
        return "dream.max_usd_per_day" if self.usd is not None and total.usd > self.usd + 1e-9 else None


_ANY_DAY = DayLimit()


class TokenBudget:
    """Limits of one run; None is no limit. `spent`: what the run has spent or reserved."""

    def __init__(
        self, calls: int | None = None, tokens: int | None = None, usd: float | None = None, day: DayLimit = _ANY_DAY
    ) -> None:
        self._calls, self._tokens, self._usd, self._day = calls, tokens, usd, day
        self.spent = Usage()

    @property
    def limits_money(self) -> bool:
        return self._usd is not None or self._day.usd is not None

    def lacks_today(self, least: Usage) -> str | None:
        """The setting that doesn't allow this much more today, if any."""
        return self._day.lack(self._day.spent.plus(least))

    def lacks_ever(self, least: Usage) -> str | None:
        """The daily limit that doesn't allow this much on any day, if any."""
        return self._day.lack(least)

    def set_aside(self, most: Usage) -> None:
        """Reserves the most that a call can cost. Raises if a limit doesn't allow it."""
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
        """Replaces the reservation by the real cost of a call."""
        back = Usage(-most.calls, -most.tokens_in, -most.tokens_out, -most.usd)
        self.spent = self.spent.plus(back).plus(real)

    def lack(self, total: Usage) -> str | None:
        """The setting that doesn't allow this total; None if all do."""
        if self._calls is not None and total.calls > self._calls:
            return "dream.max_calls"
        if self._tokens is not None and total.tokens_in + total.tokens_out > self._tokens:
            return "dream.max_tokens"
        # Sums of prices are not exact: a billionth of a dollar doesn't count.
        if self._usd is not None and total.usd > self._usd + 1e-9:
            return "dream.max_usd"
        return None
