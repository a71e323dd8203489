"""Recovery. The verbs of `Keep` that find what is wrong and mend it, give a session back to its agent, take one
away for good, or carry the whole keep as one file; wiring, no rules."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dreamkeep.context import INDEX_WAIT_S
from dreamkeep.errors import NoSpace, NotDurable, NotFound, cannot_read, from_os
from dreamkeep.event import rfc3339
from dreamkeep.verbs.arguments import resolve_session
from dreamkeep.verbs.part import Part

if TYPE_CHECKING:
    from dreamkeep.capture.ingest import Ingest
    from dreamkeep.index.store import Store
    from dreamkeep.session.messages import Message
    from dreamkeep.session.summary import Summary

#: A page is made in memory, and a snapshot must not need more of it for a longer session.
_LARGEST_PAGE = 32 << 20
_NOT_IN_IT = "It is not in this snapshot; `dreamkeep audit` tells what to do"


class Recovering(Part):
    """What `Keep` can do about what went wrong."""

    if TYPE_CHECKING:

        def drain(self, *, also_off: bool = False) -> dict[str, Any]: ...

        def _ingest(self, again: bool = False) -> Ingest: ...

        @staticmethod
        def markdown(data: dict[str, Any]) -> str: ...

    # -- faults

    def doctor(self) -> list[dict[str, Any]]:
        from importlib.util import find_spec

        from dreamkeep.capture import setup, spool
        from dreamkeep.recovery import doctor
        from dreamkeep.verbs.capture import hook_file

        checks = [
            doctor.dreams(self.families.dreams.describe_given_up),
            doctor.disk(self.families.limits.measure_room),
            doctor.sources(self.families.limits.list_paused_sources),
        ]
        found = doctor.examine(self.context.host, self.context.root, self.context.ask, lambda: self.context.strays, checks)
        found += doctor.around(off=self.context.switched_off, meaning=find_spec("wordllama") is not None)
        if use := self.families.limits.measure_use():
            found += doctor.quota(use["used"], use["limit"])
        host, root = self.context.host, self.context.root
        found += doctor.guarded("spool", lambda: doctor.hooks(host, root, self._lost_calls(), *spool.counts(host, root)))
        where, environment = self.context.find_home(None)
        return found + setup.examine(self.context.host, where, environment, hook=hook_file(), keep=self.context.root)

    def _lost_calls(self) -> list[tuple[str, str]]:
        """(file, line): what hooks could not keep, unless the user has accepted it."""
        from dreamkeep.capture import spool
        from dreamkeep.recovery.audit_keep import hook_lost

        found = spool.problems(self.context.host, self.context.root, self.context.environment)
        accepted = self.context.ask(lambda store: store.accepted()) if found else set()
        left = {path: lines for path, lines in found.items() if hook_lost(self.context.root, path, lines).id not in accepted}
        return [(path, line) for path, lines in left.items() for line in lines]

    def audit(self, *, deep: bool = False, home: str | os.PathLike[str] | None = None) -> dict[str, Any]:
        """Everything that is wrong, here and in the agents' own stores, as the contract's JSON. Nothing is written.

        `deep`: every byte is read again, not only what looks other than it did."""
        from dreamkeep.recovery.audit import audit

        where, environment = self.context.find_home(home)
        try:
            found = audit(
                self.context.host,
                self.context.root,
                home=where,
                environment=environment,
                deep=deep,
                around=self.context.environment,
                misset=self.context.config_problem,
            )
        except OSError as problem:
            raise cannot_read(problem, self.context.root) from problem
        return found.as_json()

    def repair(
        self,
        *,
        apply: bool = False,
        undo: str | None = None,
        accept: Sequence[str] = (),
        only: Sequence[str] = (),
        home: str | os.PathLike[str] | None = None,
    ) -> dict[str, Any]:
        """The plan that mends what an audit finds; or (one of these) do it, accept faults as they are, or take a repair back."""
        from dreamkeep.recovery.audit import audit
        from dreamkeep.recovery.mending import Looking
        from dreamkeep.recovery.repair import Repair, checked

        checked(apply=apply, undo=undo, accept=accept, only=only)
        if not self.context.exists():
            self.context.warn(f"There is no keep at {self.context.root} yet: only what agents have themselves is looked at.")
        where, environment = self.context.find_home(home)
        repair = Repair(
            Looking(self.context.host, self.context.root, where, environment, self.context.config["capture.exclude"]),
            lambda: audit(
                self.context.host,
                self.context.root,
                home=where,
                environment=environment,
                around=self.context.environment,
                misset=self.context.config_problem,
                sound=True,
            ),
            alive=self.context.is_alive,
            rebuild=lambda: self.context.with_index(lambda store: None),
            forget=self.families.forgetting.forget_journal,
            taken_off=self.families.forgetting.forget_frames,
            off=self.context.is_off(),
            misset=bool(self.context.config_problem),
            mask=self.context.event_mask(),
        )
        try:
            if undo is not None:
                return repair.undo(undo).as_json()
            if accept:
                return repair.accept(accept).as_json()
            return (repair.apply(only) if apply else repair.plan(only)).as_json()
        except OSError as problem:
            raise from_os(problem, "repairing", str(problem.filename or self.context.root)) from problem

    # -- back to its agent

    def restore(
        self,
        session: str,
        to: str,
        *,
        home: str | os.PathLike[str] | None = None,
        cwd: str | os.PathLike[str] | None = None,
        generation: int | None = None,
        convert: bool = False,
        dry_run: bool = False,
    ) -> dict[str, Any]:
        """Write a session back for an agent: byte for byte where it came from there, else converted."""
        from dreamkeep.recovery import restore
        from dreamkeep.recovery import where as where_to
        from dreamkeep.verbs.arguments import at_least_one

        if generation is not None:
            at_least_one(generation, "generation")
        found = resolve_session(self.context, session)
        told = self.context.ask(
            lambda store: restore.story(store, found, lambda: self.context.ask(lambda again: again.messages(found)))
        )
        where, _ = self.context.find_home(home)
        folder = os.path.abspath(os.path.expanduser(os.fspath(cwd))) if cwd is not None else ""
        place = where_to.Home(where, home is not None, self.context.environment)
        try:
            return restore.restore(
                self.context.host, self.context.root, told, restore.Wish(to, place, generation, convert, folder, dry_run)
            )
        except OSError as problem:
            raise from_os(problem, "restoring", str(problem.filename or where)) from problem

    # -- gone for good

    def delete(self, session: str) -> Summary:
        """The session as it was. Afterwards no word of it is in the keep, and nothing brings it back."""
        return self.delete_all([session])[0]

    def delete_all(self, sessions: Sequence[str]) -> list[Summary]:
        """Several at once: index, pages and packs are made anew once. If one of them is not there, none is deleted."""
        from dreamkeep.capture.seen import Cache
        from dreamkeep.capture.spool import SPOOL
        from dreamkeep.recovery.delete import half_deleted
        from dreamkeep.verbs.arguments import the_one, the_session

        for text in sessions:
            the_one([text], text, "session")  # an empty one is refused before anything is done
        if not self.context.exists() and self.context.host.stat(f"{self.context.root}/{SPOOL}") is None:
            raise NotFound(
                "there is no keep to delete from", where=self.context.root, next="If it is elsewhere, name it with --keep."
            )
        # Looked up first: whoever writes, as the drainer does, finishes what a crash left.
        before = {text: half_deleted(self.context.host, self.context.root, text) for text in sessions}
        known = {text: self._known_before(again, text) for text, again in before.items()}
        self.drain(also_off=True)  # what hooks said of it would otherwise lie in the spool for a while

        def summary(text: str) -> Summary:
            half = known[text]
            id = self.context.ask(lambda store: the_session(store, text, for_good=True, half=list(half)))
            return (self.context.ask(lambda store: store.session(id)) or half[id]) if id in half else self.summary(id)

        found = {one.id: one for one in map(summary, sessions)}  # who names one twice means it once
        cache = Cache(self.context.host, self.context.root)
        for id in found:
            cache.forget_session(id)
        cache.save()
        try:
            self._delete(list(found))
        except NoSpace:
            if not self._discard_index():
                raise
            self._delete(list(found))
        return list(found.values())

    def _delete(self, sessions: Sequence[str]) -> None:
        try:
            if self.context.host.stat(f"{self.context.root}/pages") is not None and self.families.pages.differ():
                self.families.pages.publish_before_deletion(sessions)
            self.families.forgetting.open_deleting().delete(*sessions)
        except OSError as problem:
            raise from_os(problem, "deleting", str(problem.filename or ", ".join(sessions))) from problem

    def _discard_index(self) -> bool:
        """On a full disk, to have room for what a deletion writes before it frees any. The index is a view; but if it alone knows
        what a journal lost, it stays. Whether it is gone."""
        from dreamkeep.index import open as index

        known = index.peek(self.context.host, self.context.root, lambda store: bool(store.missed()))
        if known is not False:
            return False
        index.discard(self.context.host, self.context.root, wait_s=INDEX_WAIT_S)
        return True

    def _known_before(self, again: Sequence[str], text: str) -> dict[str, Summary]:
        """What a session of that name was, before the index follows the journals: of one whose journal is gone it knows nothing
        any more then. `again`: deleted ones, of which nothing is told."""
        from dreamkeep.index import build
        from dreamkeep.session.summary import empty
        from dreamkeep.verbs.arguments import named_whole

        def known(store: Store) -> dict[str, Summary]:
            build.follow_keep(self.context.host, self.context.root, store)
            return {one: store.session(one) or empty(one) for one in named_whole(store, text)}

        return {**self.context.glance(known), **{one: empty(one) for one in again}}

    def undelete(self, session: str) -> str:
        """A later capture of the same session is accepted again; what was deleted stays deleted."""
        from dreamkeep.verbs.arguments import the_one

        dead = self.context.ask(lambda store: store.tombstones())
        matches = (
            [d for d in dead if session == d]
            or [d for d in dead if session == d.partition(":")[2]]
            or [d for d in dead if session and (d.startswith(session) or d.partition(":")[2].startswith(session))]
        )
        found = the_one(matches, session, "deleted session")
        self.families.forgetting.open_deleting().undelete(found)
        return found

    # -- the whole keep as one file

    def export(
        self, file: str | os.PathLike[str], *, view: bool = True, progress: Callable[[int, int], None] | None = None
    ) -> dict[str, Any]:
        """The whole keep as one file. `view`: with a page for people of each session."""
        from dreamkeep.recovery import snapshot
        from dreamkeep.recovery.audit import known_to_index_alone
        from dreamkeep.recovery.snapshot_file import Bad

        path = os.path.abspath(os.fspath(file))
        if not self.context.exists():
            raise NotFound("there is no keep to be exported", where=self.context.root, next="Record or ingest something first.")

        def out(store: Store | None) -> snapshot.Exported | NotDurable:
            try:
                return snapshot.export(
                    self.context.host, self.context.root, path, self._pages(store) if store else None, progress, unread
                )
            except NotDurable as problem:
                return problem  # of the file, not of the index: there is no sense in asking without one

        # Before anybody asks: an index that follows forgets it. Then the pages are made by what it knows as it is.
        lost = known_to_index_alone(self.context.host, self.context.root)
        unread = [Bad(one.where.removeprefix(f"{self.context.root}/"), f"{one.what}. {_NOT_IN_IT}") for one in lost]
        ask = self.context.glance if any(not one.about["remembered"] for one in lost) else self.context.ask
        done = ask(out) if view else out(None)
        if isinstance(done, NotDurable):
            raise done
        return {"file": path, **done.counts._asdict(), "problems": [one._asdict() for one in done.problems]}

    def _pages(self, store: Store) -> Callable[[str], tuple[str, str] | None]:
        """For a journal's folder: where a snapshot has its session's page, and that page."""
        from dreamkeep.journal.places import SESSIONS, folder_of
        from dreamkeep.verbs import views

        sessions = {folder_of(one.id): one for one in store.sessions()}
        now = rfc3339(self.context.host.now())

        def page(journal: str) -> tuple[str, str] | None:
            one = sessions.get(journal)
            if one is None:
                return None
            name = f"{journal.removeprefix(SESSIONS)[1:]}.md"
            if one.bytes > _LARGEST_PAGE:
                return name, f"# {one.id}\n\nToo long for a page: import this snapshot, then `dreamkeep show {one.id}`.\n"
            try:
                return name, self.markdown(views.session_whole(store, one.id, self.context.is_alive, now))
            except NotFound:
                return None  # deleted meanwhile

        return page

    def verify(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """Whether a snapshot is whole; what is wrong with it, if not."""
        from dreamkeep.recovery import snapshot

        path = os.path.abspath(os.fspath(file))
        found = snapshot.verify(self.context.host, path, progress)
        about = {"file": path, "ok": found.ok, "keep": found.about.get("keep", "")}
        return {**about, **found.counts._asdict(), "problems": [one._asdict() for one in found.bad]}

    def _placed(self) -> Callable[[str, Mapping[str, Any]], Mapping[str, Any] | None]:
        """Of a quote of a session: with the place where its words stand here."""
        from functools import lru_cache

        from dreamkeep.dream.told import standing

        @lru_cache(8)
        def messages(session: str) -> list[Message]:
            return self.context.ask(lambda store: store.messages(session))

        return lambda session, quote: standing(quote, messages(session))

    def import_(self, file: str | os.PathLike[str], *, progress: Callable[[int, int], None] | None = None) -> dict[str, Any]:
        """What a snapshot has and this keep has not; everything, where there is no keep yet."""
        from dreamkeep.capture.regain import regain
        from dreamkeep.journal.places import KEEP
        from dreamkeep.recovery.snapshot_import import Importing, Index

        def again(session: str, name: str, other: str) -> str:
            return regain(self.context.host, self.context.root, self._ingest(), session, name, other)

        path = os.path.abspath(os.fspath(file))
        index = Index(
            self.families.forgetting.find_indexed,
            self.families.forgetting.forget_journal,
            lambda: self.families.forgetting.forget(KEEP, ()),
            self._placed(),
            self.families.pages.take_in_edits,
        )
        done = Importing(self.context.host, self.context.root, path, self.context.journals, again, index).run(progress)
        skipped = [{"where": where, "why": why} for where, why in done.skipped]
        return {"file": path, **done._asdict(), "skipped": skipped, "bad": [one._asdict() for one in done.bad]}
