"""What words do to the meaning of a statement, as tables for alike.py. English; a word that is in no table stands for itself.

A word that is missing here makes two statements look more different than they are, never more alike: so that nothing is merged or
superseded by mistake, only kept twice.
"""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _phrases(text: str) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(phrase.split()) for phrase in text.split(","))


def _groups(text: str) -> dict[str, str]:
    """Words apart by `;`: each stands for the first of its group."""
    found = [group.split() for group in text.split(";")]
    return {word: group[0] for group in found for word in group}


#: Say nothing about the fact itself: who speaks, how politely, how firmly, that it is so here. `use X` is `X`.
LIGHT = _set(
    """
    a an the this that these those there here everywhere anywhere it its they them their we us our ours i me my mine you
    your yours he she his her one ones is are was were be been being am do does did done have has had having must should
    shall need needs needed want wants wanted prefer prefers preferred rather please pls plz kindly just also too so then
    well ok okay oh ah hm yes yeah yep really very quite actually now again still already always all every each any
    both whole entire of at as and which who what where how like let lets go goes going gone take takes took use uses used
    using usage utilize keep keeps kept repo repos repository codebase project projects remember note reminder btw way
    sure clearly simply exactly fine got gets get make sure ensure course generally usually normally basically
    honestly e.g i.e etc ever required mandatory obligatory supposed stay stays stick sticks stuck thing things since such
    itself even though anyway however everything
    """
)
#: In front of what it relates to, part of it: `a before b` is not `b before a`.
RELATES = _set(
    """
    before after to from into onto until till unless except if when while than above below under over within between
    during with by for in on per via against
    """
)
#: `in this repo`, `here`: the relation ends with them.
PLACES = _set("repo repos repository codebase project projects here everywhere anywhere place")
#: Negations, and words that are one by what they ask for.
NEGATES = _set(
    """
    not no never none neither nor without cannot cant dont doesnt didnt isnt arent wasnt werent wont wouldnt shouldnt
    mustnt couldnt hasnt havent hadnt aint avoid avoids avoided avoiding stop stops stopped refrain nobody nothing nowhere
    lacks
    """
)
#: Whole statements are negated by these, wherever they stand: `X is forbidden`.
FORBIDS = _set("forbidden banned prohibited disallowed verboten taboo unwanted obsolete outdated deprecated")
#: A negation and `all` is something else than a negation.
WHOLE = _set("all every always everything everywhere each both")
#: Two words that are one: what stands for them.
_PAIRS = {
    "nolonger": "no longer, not any more",
    "anymore": "any more, any longer",
    "insteadof": "instead of, rather than",
    "infavourof": "in favour of, in favor of",
    "must": "have to, has to, had to, need to, needs to, want to, got to, ought to, like to, prefer to, make sure to, make sure",
    "will": "going to",
    "use": "go with, going with, went with",
    "fromnowon": "from now on, from here on, as of now",
    "afterall": "after all",
    "forbidden": "not allowed, not permitted, not acceptable, off limits",
    "avoid": "hands off, stay away from, keep away from, leave out",
    "notyet": "not yet",
    "min": "at least, no less than, no fewer than, or above, or more",
    "max": "at most, no more than, not more than, up to, or below, or less",
    "before": "no later than, prior to",
    "setup": "set up",
    "dependson": "depends on",
    "manually": "by hand",
    "also": "as well, of course",
    "fornow": "for now",
    "default": "by default",
}
PAIRS: dict[tuple[str, ...], str] = {tuple(pair.split()): name for name, pairs in _PAIRS.items() for pair in pairs.split(", ")}
#: One word, also where somebody writes two, or a hyphen.
COMPOUNDS = _set(
    """
    lockfile lockfiles changelog changelogs filename filenames username usernames hostname hostnames timestamp timestamps
    whitespace runtime frontend frontends backend backends typecheck typechecks precommit postcommit subfolder subfolders
    namespace namespaces codegen webhook webhooks hotfix hotfixes dataset datasets workflow workflows endpoint endpoints
    """
)
#: What stands behind one of these is why, and not what.
REASONS = _set("because otherwise cos cuz")
#: … and behind these, when they begin a clause.
REASONS_AT_START = _set("since as so else")
#: A clause that begins so narrows what stands before it, and belongs to it.
NARROWS = _set(
    """
    but except unless only if when while until till for in on with without by and or than then before after where which
    that who provided though although
    """
)

#: Something else held before. Strong ones say so by themselves; soft ones need to be borne out by what is said.
STRONG = _set(
    """
    insteadof instead nolonger anymore obsolete outdated deprecated afterall switch switching switched switches migrate
    migrated migrating migrates replace replaced replaces replacing moved moving move supersede supersedes superseded
    infavourof abandon abandoned drop dropped dropping
    """
)
SOFT = _set(
    """
    now actually fromnowon changed change changes correction sorry update updated new newly raise raised lower lowered
    increase increased decrease decreased bump bumped reduce reduced wrong down up
    """
)
#: Taken back, and nothing said in its place.
TAKES_BACK = _phrases(
    """
    forget, scrap, ignore, disregard, never mind, nevermind, nolonger applies, nolonger apply, nolonger holds,
    nolonger hold, nolonger true, nolonger valid, nolonger needed, nolonger necessary, nolonger relevant, nolonger
    required, nolonger need, apply anymore, applies anymore, hold anymore, holds anymore, true anymore, valid
    anymore, needed anymore, necessary anymore, obsolete, outdated, moot
    """
)
#: Words of taking back that say nothing of what is taken back.
TAKING = _set(
    """
    forget scrap ignore disregard never mind nevermind apply applies hold holds true valid needed need necessary relevant
    required obsolete outdated moot rule rules about said told earlier previous old former constraint decision requirement
    preference
    """
)

#: How sure, or whether at all: part of what is said.
HEDGES = _groups(
    """
    maybe perhaps possibly probably likely apparently seems suspect guess dunno think might could; may can allowed
    permitted optional optionally; will gonna shall
    """
)
#: Different words, one meaning. Only what is so in every context.
SAME = _groups(
    """
    database db dbs databases; documentation docs doc; config configs configuration configurations; folder dir dirs
    directory directories folders; environment env envs environments; production prod; dependency dep deps dependencies;
    pr prs pullrequest mr mrs; repo repos repository repositories; typescript ts; javascript js; postgres postgresql;
    kubernetes k8s; argument args arg arguments; parameter param params parameters; message msg msgs messages; app apps
    application applications; run execute executes executed executing exec invoke ran running runs; delete remove
    removes removed removing erase deletes deleted deleting; write written wrote writing writes; build built building
    builds; send sent sending sends; choose chose chosen choosing pick picked; make made making makes; break broke
    broken breaks breaking; read reads reading; put puts putting; fail failed fails failing failure failures; manually
    manual; automatically automatic auto; color colour colours colors; min minimum minimal; max maximum maximal; mail
    mails email emails e-mail e-mails; gray grey; artifact artefact artefacts artifacts; meter metre metres meters; big
    large larger bigger; small tiny smaller; short brief briefly concise terse
    """
)
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {
    **{word: str(n) for n, word in enumerate(_COUNTED) if n != 1},
    "once": "1x",
    "twice": "2x",
}
UNITS = _groups(
    """
    ms millisecond milliseconds msec; s sec secs second seconds; minute min mins minutes; hour h hr hrs hours; day d
    days; week weeks; byte b bytes; kb kib; mb mib; gb gib; hz; khz; mhz; % percent; px pixel pixels; line lines; char
    chars character characters column columns; space spaces; times time x; volt v volts; dbm; k; token tokens; row rows;
    retry retries; worker workers; thread threads; reviewer reviewers
    """
)
#: Come up in statements about anything: to share one of these is not to be about the same.
GENERIC = _set(
    """
    test code file build run commit change work make do add get set line function class script tool command write read new
    old good bad user fix error fail call name value way part step first last next check time day case problem issue
    version number place install start only write update delete put look see show find want know default support branch
    main before after when if until to from than release server service data
    """
)
#: Of a statement with one of these the meaning depends on when it was said.
RELATIVE_DATES = _set("today tomorrow yesterday tonight")
RELATIVE_AFTER = _set(
    """
    week month year quarter sprint morning afternoon evening night weekend monday tuesday wednesday thursday friday
    saturday sunday
    """
)
#: Behind one of these a number is what is said.
TELLS = _set(
    """
    is are be must should use uses used using to at set stay stays keep within after before every max min than by limit limited
    listen listens listening bind binds bound
    """
)
#: A number right behind one of these is its value; behind any other noun it is a name: `service 3`, `step 2`, `issue 12`.
VALUED = _set(
    """
    port ports timeout timeouts limit limits max min maximum minimum size sizes length width height depth count counts level
    levels threshold thresholds budget quota weight rate ratio factor interval delay ttl age retries retry attempts concurrency
    parallelism workers threads replicas coverage score priority version release pin temperature margin padding indent
    precision scale capacity duration window offset batch seed
    """
)
#: … or its version.
VERSIONED = _set(
    """
    node nodejs python py java jdk jre php ruby perl golang rust rustc msrv gcc clang llvm cmake gradle maven kotlin scala
    swift dart flutter elixir erlang haskell ghc julia lua dotnet typescript ts es ecmascript javascript js react vue angular
    svelte next nextjs nuxt vite webpack eslint prettier jest vitest django flask rails laravel spring postgres postgresql mysql
    mariadb sqlite duckdb redis kafka mongo mongodb elasticsearch opensearch clickhouse ubuntu debian fedora alpine centos rhel
    windows macos ios android xcode docker kubernetes helm terraform ansible nginx openssl tls http numpy pandas pytorch
    tensorflow cuda qt gtk bootstrap tailwind electron pnpm npm yarn bun deno c v
    """
)
ORDINAL = _set("st nd rd th")
#: What stands behind one of these is where or for what something holds, and not what is said of it.
SCOPES = _set("in for on with within under during inside per by at when if while via against of")
#: Before these stands whom or what a statement is about.
VERBS = _set(
    """
    is are was were be been am do does did will would can could must should shall may might has have had use uses used using
    set sets stay stays keep keeps need needs listens listen runs run lives live goes go switch switches switched switching
    migrate migrates migrated migrating move moves moved moving change changed replaces replaced drops dropped
    """
)
DIRECTIONS = _set("up down only min max about around")
#: A `not` behind one of these negates the verb; behind anything else it sets one thing against another.
AUXILIARY = _set("is are was were be been do does did will would can could must should shall may might has have had am")
#: One such word more makes it another statement.
WEIGHTY = _set("only may maybe will all or some most")
#: When something is to be, or is as a rule.
RULES = _set("is are be must should shall will need needs always every daily weekly nightly may can")
#: … and when it was.
HAPPENED = _set("was were went broke died fell came began ran hung froze saw got woke took did")
COPULAS = _set("is are was were be been am")
#: Who does this `from` something leaves it.
MOVES = _set("move moves moved moving switch switches switched switching migrate migrates migrated migrating change changed")
#: Whatever it was before: this is in its place.
INSTEAD = _set("instead insteadof infavourof afterall nolonger anymore")
NO_LONGER = _set("nolonger anymore")
