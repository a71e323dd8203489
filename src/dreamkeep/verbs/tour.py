"""The tour: a separate keep in a temporary folder, filled from this machine's agents or from the sample.

Nothing outside that folder is written. Of the agents' own files only the newest are read, so that a tour is short.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from dreamkeep import sample as week
from dreamkeep.errors import BadUsage, from_os
from dreamkeep.host import Host, RealHost, make_folders
from dreamkeep.keep import Keep
from dreamkeep.sample import recorded
from dreamkeep.verbs.capture import open_ingest

if TYPE_CHECKING:
    from dreamkeep.capture.context import IngestOutcome
    from dreamkeep.capture.find import Newest

_MOST = 25
_BYTES = 16 << 20
#: In this keep, idle sessions count as ended almost at once, so that a dream can read today's.
_QUIET_HOURS = "0.02"


class Tour(NamedTuple):
    """`home`: the sample's; None where the user's own agents are looked at. `found`: what of them is looked at."""

    folder: str
    keep: Keep
    home: str | None
    found: Newest | None


def begin(folder: str | None, environment: Mapping[str, str], *, sample: bool) -> Tour:
    """`folder`: a new one, to be made; else one among the temporary ones. `sample`: also where agents are found."""
    host: Host = RealHost()
    found = None if sample else _find_newest(host, environment)
    # The settings of the user's own keep don't apply to this one: it stays offline and free.
    free = {key: value for key, value in environment.items() if not key.startswith("DREAMKEEP_")}
    free["DREAMKEEP_HYGIENE_STALE_HOURS"] = _QUIET_HOURS
    place = _make_folder(host, folder, environment)
    if found and found.sources:
        return Tour(place, Keep.open(f"{place}/keep", environment=free), None, found)
    host = week.SundayHost()
    home = f"{place}/home"
    try:
        week.lay_out(host, home)
    except OSError as problem:
        raise from_os(problem, "unpacking the sample", home) from problem
    keep = Keep.open(f"{place}/keep", host=host, environment={})
    keep.context.find_embedder = lambda: None  # search by words alone, whatever is installed: everybody sees the same
    return Tour(place, keep, home, None)


def _find_newest(host: Host, environment: Mapping[str, str]) -> Newest:
    from dreamkeep.agents.contract import Source
    from dreamkeep.capture import find

    glance = find.Glance(host)
    found = list(find.everywhere(glance, os.path.expanduser("~"), environment, find.checked(())))
    for one in found:
        if isinstance(one, Source) and one.path not in glance.seen and (at := host.stat(one.path)):
            glance.seen[one.path] = at
    return find.newest(found, glance.seen, most=_MOST, size=_BYTES)


def _make_folder(host: Host, folder: str | None, environment: Mapping[str, str]) -> str:
    place = os.path.abspath(folder or f"{environment.get('TMPDIR') or '/tmp'}/dreamkeep-{host.random(4).hex()}")
    try:
        make_folders(host, os.path.dirname(place))
        made = host.make_folder(place)
    except OSError as problem:
        raise from_os(problem, "making the tour's folder", place) from problem
    if not made:
        raise BadUsage("the tour needs a new folder", where=place, next="Name one that doesn't exist yet.")
    return place


def take_in(tour: Tour) -> Iterator[IngestOutcome]:
    """Import the sessions of the tour's home, or the newest of this machine."""
    if tour.found is None:
        yield from tour.keep.ingest(home=tour.home)
    else:
        yield from open_ingest(tour.keep.context).run(tour.found.sources)
        tour.keep.catch_up()


slug = week.slug
#: The session that an agent removed, as a user may type it, and that agent.
GONE_FROM = week.GONE_FROM
GONE = f"{GONE_FROM}:{week.GONE[:8]}"


def damage_transcripts(tour: Tour) -> None:
    """Damage the sample's agent files. Never touches a user's own."""
    if tour.home is None:
        raise BadUsage("your own files are never changed", where=tour.folder, next="Use the sample: `tour --sample`.")
    week.damage_transcripts(week.SundayHost(), tour.home)


def exchange_of(tour: Tour) -> str:
    """The folder of requests and their answers."""
    return f"{tour.folder}/exchange"


def lay_answers(tour: Tour) -> Counter[str]:
    """Put a model's recorded answers beside the waiting requests. Returns how many of each kind."""
    host = week.SundayHost()
    folder = exchange_of(tour)
    try:
        return recorded.lay_answers(host, folder, recorded.load(host).answer)
    except OSError as problem:
        raise from_os(problem, "laying the recorded answers", folder) from problem
