"""The families of verbs of one keep. Each is made when it is first needed, and is handed the families that it needs:

    similarity ─► packs ─► pages ─► forgetting ─► dreams ─┬─► hygiene ─► capture ─► search, deletion, snapshots
                             │                            ├─► exchange, faults
                             │                            └─► notes ─► review
                             └────► projects ─► capture, review

A family is handed only families to its left, so there are no cycles. Modules load with the first verb that needs them.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dreamkeep.context import KeepContext
    from dreamkeep.verbs.capture import CaptureVerbs
    from dreamkeep.verbs.dream.exchange import ExchangeVerbs
    from dreamkeep.verbs.dream.hygiene import HygieneVerbs
    from dreamkeep.verbs.dream.model import ModelVerbs
    from dreamkeep.verbs.dream.pages import PageVerbs
    from dreamkeep.verbs.dream.run import DreamVerbs
    from dreamkeep.verbs.limits import Limits
    from dreamkeep.verbs.memory.notes import NoteVerbs
    from dreamkeep.verbs.memory.review import ReviewVerbs
    from dreamkeep.verbs.memory.tasks import TaskVerbs
    from dreamkeep.verbs.projects import ProjectVerbs
    from dreamkeep.verbs.recall.pack import PackVerbs
    from dreamkeep.verbs.recall.search import SearchVerbs
    from dreamkeep.verbs.recall.similarity import Similarity
    from dreamkeep.verbs.record import RecordVerbs
    from dreamkeep.verbs.recovery.delete import DeleteVerbs
    from dreamkeep.verbs.recovery.faults import FaultVerbs
    from dreamkeep.verbs.recovery.forget import Forgetting
    from dreamkeep.verbs.recovery.restore import RestoreVerbs
    from dreamkeep.verbs.recovery.snapshot import SnapshotVerbs
    from dreamkeep.verbs.sessions import SessionVerbs
    from dreamkeep.verbs.upkeep import UpkeepVerbs


class Families:
    """One of each, for one keep."""

    def __init__(self, context: KeepContext) -> None:
        self._context = context
        context.finish_deletions = lambda: self.forgetting.finish_deletions()

    @cached_property
    def sessions(self) -> SessionVerbs:
        from dreamkeep.verbs.sessions import SessionVerbs

        return SessionVerbs(self._context)

    @cached_property
    def record(self) -> RecordVerbs:
        from dreamkeep.verbs.record import RecordVerbs

        return RecordVerbs(self._context, self.sessions)

    @cached_property
    def similarity(self) -> Similarity:
        from dreamkeep.verbs.recall.similarity import Similarity

        return Similarity(self._context)

    @cached_property
    def packs(self) -> PackVerbs:
        from dreamkeep.verbs.recall.pack import PackVerbs

        return PackVerbs(self._context, self.similarity)

    @cached_property
    def pages(self) -> PageVerbs:
        from dreamkeep.verbs.dream.pages import PageVerbs

        return PageVerbs(self._context, self.packs, self.similarity)

    @cached_property
    def forgetting(self) -> Forgetting:
        from dreamkeep.verbs.recovery.forget import Forgetting

        return Forgetting(self._context, self.pages, self.packs)

    @cached_property
    def models(self) -> ModelVerbs:
        from dreamkeep.verbs.dream.model import ModelVerbs

        return ModelVerbs(self._context)

    @cached_property
    def dreams(self) -> DreamVerbs:
        from dreamkeep.verbs.dream.run import DreamVerbs

        return DreamVerbs(self._context, self.models, self.pages, self.forgetting, self.similarity)

    @cached_property
    def hygiene(self) -> HygieneVerbs:
        from dreamkeep.verbs.dream.hygiene import HygieneVerbs

        return HygieneVerbs(self._context, self.dreams)

    @cached_property
    def exchange(self) -> ExchangeVerbs:
        from dreamkeep.verbs.dream.exchange import ExchangeVerbs

        return ExchangeVerbs(self._context, self.dreams, self.similarity)

    @cached_property
    def tasks(self) -> TaskVerbs:
        from dreamkeep.verbs.memory.tasks import TaskVerbs

        return TaskVerbs(self._context)

    @cached_property
    def notes(self) -> NoteVerbs:
        from dreamkeep.verbs.memory.notes import NoteVerbs

        return NoteVerbs(self._context, self.tasks, self.pages, self.dreams, self.similarity)

    @cached_property
    def projects(self) -> ProjectVerbs:
        from dreamkeep.verbs.projects import ProjectVerbs

        return ProjectVerbs(self._context, self.pages)

    @cached_property
    def review(self) -> ReviewVerbs:
        from dreamkeep.verbs.memory.review import ReviewVerbs

        return ReviewVerbs(self._context, self.notes, self.pages, self.projects)

    @cached_property
    def limits(self) -> Limits:
        from dreamkeep.verbs.limits import Limits

        return Limits(self._context)

    @cached_property
    def upkeep(self) -> UpkeepVerbs:
        from dreamkeep.verbs.upkeep import UpkeepVerbs

        return UpkeepVerbs(self._context, self.limits, self.similarity)

    @cached_property
    def capture(self) -> CaptureVerbs:
        from dreamkeep.verbs.capture import CaptureVerbs

        return CaptureVerbs(self._context, self.limits, self.packs, self.projects, self.dreams, self.hygiene)

    @cached_property
    def search(self) -> SearchVerbs:
        from dreamkeep.verbs.recall.search import SearchVerbs

        return SearchVerbs(self._context, self.similarity, self.capture)

    @cached_property
    def faults(self) -> FaultVerbs:
        from dreamkeep.verbs.recovery.faults import FaultVerbs

        return FaultVerbs(self._context, self.limits, self.dreams)

    @cached_property
    def restore(self) -> RestoreVerbs:
        from dreamkeep.verbs.recovery.restore import RestoreVerbs

        return RestoreVerbs(self._context)

    @cached_property
    def deletion(self) -> DeleteVerbs:
        from dreamkeep.verbs.recovery.delete import DeleteVerbs

        return DeleteVerbs(self._context, self.sessions, self.capture, self.forgetting, self.pages)

    @cached_property
    def snapshots(self) -> SnapshotVerbs:
        from dreamkeep.verbs.recovery.snapshot import SnapshotVerbs

        return SnapshotVerbs(self._context, self.capture, self.forgetting, self.pages)
