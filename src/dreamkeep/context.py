"""What every verb gets of a keep: where it is, its settings, its journals, and its index."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from dreamkeep import config as settings
from dreamkeep.errors import BadConfig, BadUsage, DreamkeepError, NotDurable, cannot_read
from dreamkeep.event import Event, Ids, Kind
from dreamkeep.host import Host, read_file
from dreamkeep.journal.places import DELETIONS

if TYPE_CHECKING:
    from dreamkeep.capture.python import Owners
    from dreamkeep.index.build import Progress
    from dreamkeep.index.store import Store
    from dreamkeep.journal.writers import JournalWriters
    from dreamkeep.memory.memory import Memory
    from dreamkeep.recall.embed import Embedder

T = TypeVar("T")

INDEX_WAIT_S = 10.0


class KeepContext:
    """One keep as its verbs see it. Reading creates nothing; `journals` makes the folder."""

    def __init__(self, root: str, host: Host, environment: Mapping[str, str], *, anyway: bool = False) -> None:
        self.root = root
        self.host = host
        self.environment = environment
        _check_folder(host, root)
        #: Why keep.toml is ignored, if `anyway` let the keep open without it.
        self.config_problem = ""
        try:
            self.config = settings.load(_read_toml(host, root), environment, where=f"{root}/keep.toml")
        except DreamkeepError as problem:
            if not anyway:
                raise
            self.config = settings.load(None, environment)
            self.config_problem = problem.what
        self.ids = Ids(host.now, host.random)
        #: Whether the environment turns capture off; `is_off` also looks into the keep.
        self.switched_off = settings.switched_off(environment)
        #: Surfaces may set these two, to show that work takes time or that something is wrong.
        self.progress: Progress | None = None
        self.warn: Callable[[str], None] = lambda text: None
        #: Returns the embedder if one is installed.
        self.find_embedder: Callable[[], Embedder | None] = _find_installed_embedder
        #: Finishes deletions that were interrupted. `Keep` sets it.
        self.finish_deletions: Callable[[], None] = lambda: None
        #: What the last `ingest` corrected of projects.
        self.corrected: Sequence[dict[str, str]] = ()
        #: Journals that could not be read when the index was last updated.
        self.strays: tuple[str, ...] = ()
        self._making = threading.RLock()
        self._journals: JournalWriters | None = None
        self._owners: Owners | None = None
        self._made: dict[type, Any] = {}

    def close(self) -> None:
        if self._journals:
            self._journals.close()
        if self._owners:
            self._owners.close()

    def exists(self) -> bool:
        return self.host.stat(f"{self.root}/journal") is not None

    def once(self, kind: type[T], make: Callable[[], T]) -> T:
        """The one object of this class that the keep's verbs share; made when it is first needed."""
        with self._making:
            if kind not in self._made:
                self._made[kind] = make()
            made: T = self._made[kind]
            return made

    def is_off(self) -> bool:
        try:
            return self.switched_off or self.host.stat(f"{self.root}/OFF") is not None
        except OSError:
            return True  # something with that name is there

    def find_home(self, home: str | os.PathLike[str] | None) -> tuple[str, Mapping[str, str]]:
        """The home folder to look in, and the environment that names further places. A named home has none."""
        if home is not None:
            return os.path.abspath(os.path.expanduser(os.fspath(home))), {}
        return os.path.expanduser("~"), self.environment

    # -- writing

    def journals(self) -> JournalWriters:
        """The journals, to write to. Makes the keep if there is none, and refuses one of a newer format."""
        with self._making:
            if self._journals is None:
                from dreamkeep.journal.writers import JournalWriters

                journals = JournalWriters(self.host, self.root, self.ids, mask=self.event_mask())
                if journals.writer("").carried("created") is None:
                    # The cursor keeps it unique, even if many processes open a new keep at the same time.
                    journals.say("", Kind.KEEP_CREATED, {"keep": self.ids.new()}, {"created": 1})
                self._journals = journals
                self._finish_waiting_deletions()
            return self._journals

    def settle_deletions(self) -> None:
        """Finish interrupted deletions. For verbs that write but may never call `journals`."""
        if self._has_waiting_deletions():
            self.journals()

    def _has_waiting_deletions(self) -> bool:
        folder = f"{self.root}/{DELETIONS}"
        return self.host.stat(folder) is not None and bool(self.host.names(folder))

    def _finish_waiting_deletions(self) -> None:
        try:
            if self._has_waiting_deletions():
                self.finish_deletions()
        except (DreamkeepError, OSError) as problem:
            # `doctor` reports it, and it is tried again. Other sessions must still be recorded.
            self.warn(f"A deletion that was interrupted can't be finished: {problem}")

    def event_mask(self) -> Callable[[Event], Event] | None:
        """Removes secrets from an event before it is journaled; None if the settings do not ask for that."""
        if not self.config["capture.redact_raw"]:
            return None
        from dreamkeep.capture.sources.masked import mask_event

        return mask_event

    def owners(self) -> Owners:
        with self._making:
            if self._owners is None:
                from dreamkeep.capture.python import Owners

                self._owners = Owners(self.host, self.root, self.ids.new)
            return self._owners

    def is_alive(self, owner: str) -> bool:
        return self.owners().alive(owner)

    # -- the index

    def ask(self, act: Callable[[Store], T]) -> T:
        """Let `act` ask an up-to-date index. If the index can't be written, one in memory answers: reading must not need
        writing."""
        if not self.exists():
            return self._ask_in_ram(act)
        try:
            return self.with_index(act)
        except NotDurable as problem:
            self.warn(f"The index can't be written, so this answer rereads everything: {problem}")
            return self._ask_in_ram(act)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem

    def glance(self, act: Callable[[Store], T]) -> T:
        """Ask the index as it is, without following the journal. For callers that already know the row exists."""
        if not self.exists():
            return self.ask(act)
        try:
            return self.with_index(act, follow=False)
        except (NotDurable, OSError):
            return self.ask(act)

    def look(self, act: Callable[[Store], T]) -> T:
        """As `ask`, but write nothing: use the index file if it is up to date, or else one in memory."""
        from dreamkeep.index import build
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite_errors import STRANGE, Unusable

        def current(store: Store) -> list[T]:
            return [act(store)] if build.current(self.host, self.root, store.places()) else []

        try:
            found = index.peek(self.host, self.root, current) if self.exists() else None
        except (Unusable, *STRANGE):
            found = None
        return found[0] if found else self._ask_in_ram(act)

    def with_index(self, act: Callable[[Store], T], *, follow: bool = True) -> T:
        """Let `act` use the index file. A damaged one, or one of another version, is rebuilt first. Damage may show only when
        `act` uses an answer, so an error of `act` is believed only if a new index leads to it, too."""
        from dreamkeep.index import open as index
        from dreamkeep.index.sqlite_errors import STRANGE, Unusable

        try:
            return self._open_index(act, follow)
        except UnicodeEncodeError:
            raise  # the question is at fault, not the index
        except (Unusable, *STRANGE):
            index.discard(self.host, self.root, wait_s=INDEX_WAIT_S)
            return self._open_index(act, follow)

    def _open_index(self, act: Callable[[Store], T], follow: bool) -> T:
        from dreamkeep.index import build
        from dreamkeep.index import open as index

        with index.opened(self.host, self.root, wait_s=INDEX_WAIT_S) as store:
            if follow and not build.current(self.host, self.root, store.places()):
                self.strays = build.follow(self.host, self.root, store, self.progress).strays
            return act(store)

    def _ask_in_ram(self, act: Callable[[Store], T]) -> T:
        """Answer from an index in memory: for a keep that does not exist yet, or that we may only read."""
        from dreamkeep.index import build
        from dreamkeep.index.sqlite import SqliteStore

        store = SqliteStore.in_memory()
        try:
            self.strays = build.follow(self.host, self.root, store, self.progress, writes=False).strays
            return act(store)
        except OSError as problem:
            raise cannot_read(problem, self.root) from problem
        finally:
            store.close()

    # -- what is remembered

    def load_memory(self, *tables: str) -> Memory:
        """The memory (notes, insights, tasks …); only the named tables, if any are named."""
        from dreamkeep.index import build
        from dreamkeep.memory.memory import Memory

        def load(store: Store) -> Memory:
            build.follow_keep(self.host, self.root, store)
            named = ((table, *row) for table in tables for row in store.memory_table(table))
            return Memory.load(named if tables else store.memory())

        return self.glance(load)

    def ask_memory(self, act: Callable[[Memory], T]) -> T:
        """Ask the memory; only what `act` asks for is read. An error of `act` itself does not count as a damaged index."""
        from dreamkeep.index import build
        from dreamkeep.index.sqlite_errors import Unusable
        from dreamkeep.memory.memory import Memory

        def asked(store: Store) -> tuple[list[T], Exception | None]:
            build.follow_keep(self.host, self.root, store)
            with store.reading():
                try:
                    return [act(Memory.on_demand(store.memory_row, store.memory_table))], None
                except Unusable:
                    raise
                except (DreamkeepError, OSError) as problem:
                    return [], problem

        done, problem = self.glance(asked)
        if problem:
            raise problem
        return done[0]


def _check_folder(host: Host, root: str) -> None:
    try:
        found = host.stat(root)
    except OSError as problem:
        raise cannot_read(problem, root) from problem
    if found and not found.is_folder:
        raise BadUsage("a keep is a folder, but this is a file", where=root, next="Choose another with --keep.")


def _read_toml(host: Host, root: str) -> bytes | None:
    path = f"{root}/keep.toml"
    try:
        found = host.stat(path)
        if found and found.is_folder:
            raise BadConfig("keep.toml must be a file", where=path, next="Remove the folder.")
        return read_file(host, path) if found else None
    except OSError as problem:
        raise cannot_read(problem, path) from problem


def _find_installed_embedder() -> Embedder | None:
    from dreamkeep.recall.embed import installed

    return installed()
