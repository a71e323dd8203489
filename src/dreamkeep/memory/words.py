"""What words do to the meaning of a statement, as tables for alike.py. English; a word that is in no table stands for itself.

A word that is missing here makes two statements look more different than they are, never more alike: so that nothing is merged or
superseded by mistake, only kept twice.
"""

from __future__ import annotations


def _set(text: str) -> frozenset[str]:
    return frozenset(text.split())


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
PAIRS: dict[tuple[str, ...], str] = {
    ("no", "longer"): "nolonger",
    ("not", "any", "more"): "nolonger",
    ("any", "more"): "anymore",
    ("any", "longer"): "anymore",
    ("instead", "of"): "insteadof",
    ("rather", "than"): "insteadof",
    ("in", "favour", "of"): "infavourof",
    ("in", "favor", "of"): "infavourof",
    ("have", "to"): "must",
    ("has", "to"): "must",
    ("had", "to"): "must",
    ("need", "to"): "must",
    ("needs", "to"): "must",
    ("want", "to"): "must",
    ("got", "to"): "must",
    ("ought", "to"): "must",
    ("like", "to"): "must",
    ("prefer", "to"): "must",
    ("going", "to"): "will",
    ("go", "with"): "use",
    ("going", "with"): "use",
    ("went", "with"): "use",
    ("make", "sure", "to"): "must",
    ("make", "sure"): "must",
    ("from", "now", "on"): "fromnowon",
    ("from", "here", "on"): "fromnowon",
    ("as", "of", "now"): "fromnowon",
    ("after", "all"): "afterall",
    ("not", "allowed"): "forbidden",
    ("not", "permitted"): "forbidden",
    ("not", "acceptable"): "forbidden",
    ("off", "limits"): "forbidden",
    ("hands", "off"): "avoid",
    ("stay", "away", "from"): "avoid",
    ("keep", "away", "from"): "avoid",
    ("leave", "out"): "avoid",
    ("not", "yet"): "notyet",
    ("at", "least"): "min",
    ("at", "most"): "max",
    ("no", "more", "than"): "max",
    ("not", "more", "than"): "max",
    ("no", "less", "than"): "min",
    ("no", "fewer", "than"): "min",
    ("no", "later", "than"): "before",
    ("prior", "to"): "before",
    ("up", "to"): "max",
    ("or", "below"): "max",
    ("or", "less"): "max",
    ("or", "above"): "min",
    ("or", "more"): "min",
    ("set", "up"): "setup",
    ("depends", "on"): "dependson",
    ("by", "hand"): "manually",
    ("as", "well"): "also",
    ("of", "course"): "also",
    ("for", "now"): "fornow",
    ("by", "default"): "default",
}
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
TAKES_BACK = (
    ("forget",),
    ("scrap",),
    ("ignore",),
    ("disregard",),
    ("never", "mind"),
    ("nevermind",),
    ("nolonger", "applies"),
    ("nolonger", "apply"),
    ("nolonger", "holds"),
    ("nolonger", "hold"),
    ("nolonger", "true"),
    ("nolonger", "valid"),
    ("nolonger", "needed"),
    ("nolonger", "necessary"),
    ("nolonger", "relevant"),
    ("nolonger", "required"),
    ("nolonger", "need"),
    ("apply", "anymore"),
    ("applies", "anymore"),
    ("hold", "anymore"),
    ("holds", "anymore"),
    ("true", "anymore"),
    ("valid", "anymore"),
    ("needed", "anymore"),
    ("necessary", "anymore"),
    ("obsolete",),
    ("outdated",),
    ("moot",),
)
#: Words of taking back that say nothing of what is taken back.
TAKING = _set(
    """
    forget scrap ignore disregard never mind nevermind apply applies hold holds true valid needed need necessary relevant
    required obsolete outdated moot rule rules about said told earlier previous old former constraint decision requirement
    preference
    """
)

#: An open loop is closed by a statement with one of these …
DONE = _set(
    """
    done finished completed complete fixed merged shipped landed resolved implemented added removed closed committed
    commit works released deployed deleted dropped renamed moved migrated written wrote rewrote rewritten updated upgraded
    replaced hooked documented tested cleaned refactored backfilled tagged published solved cleared finally
    """
)
#: … and by none with these.
PENDING = _set(
    """
    todo fixme still notyet yet must should shall will would need needs later next tomorrow pending remaining remains open
    left plan planned planning soon eventually wip blocked might maybe could
    """
)
#: Say of a loop only that it is open.
LOOPING = PENDING | _set(
    "list item items ticket backlog followup follow milestone release time session december someone somebody"
)

#: How sure, or whether at all: part of what is said.
HEDGES = {
    **dict.fromkeys(
        ("maybe", "perhaps", "possibly", "probably", "likely", "apparently", "seems", "suspect", "guess", "dunno", "think"),
        "maybe",
    ),
    **dict.fromkeys(("might", "could", "dunno"), "maybe"),
    **dict.fromkeys(("can", "may", "allowed", "permitted", "optional", "optionally"), "may"),
    **dict.fromkeys(("will", "gonna", "shall"), "will"),
}
#: Different words, one meaning. Only what is so in every context.
SAME = {
    **dict.fromkeys(("db", "dbs", "database", "databases"), "database"),
    **dict.fromkeys(("docs", "doc", "documentation"), "documentation"),
    **dict.fromkeys(("config", "configs", "configuration", "configurations"), "config"),
    **dict.fromkeys(("dir", "dirs", "directory", "directories", "folder", "folders"), "folder"),
    **dict.fromkeys(("env", "envs", "environment", "environments"), "environment"),
    **dict.fromkeys(("prod", "production"), "production"),
    **dict.fromkeys(("dep", "deps", "dependency", "dependencies"), "dependency"),
    **dict.fromkeys(("pr", "prs", "pullrequest", "mr", "mrs"), "pr"),
    **dict.fromkeys(("repo", "repos", "repository", "repositories"), "repo"),
    **dict.fromkeys(("ts", "typescript"), "typescript"),
    **dict.fromkeys(("js", "javascript"), "javascript"),
    **dict.fromkeys(("postgres", "postgresql"), "postgres"),
    **dict.fromkeys(("k8s", "kubernetes"), "kubernetes"),
    **dict.fromkeys(("args", "arg", "argument", "arguments"), "argument"),
    **dict.fromkeys(("param", "params", "parameter", "parameters"), "parameter"),
    **dict.fromkeys(("msg", "msgs", "message", "messages"), "message"),
    **dict.fromkeys(("app", "apps", "application", "applications"), "app"),
    **dict.fromkeys(("execute", "executes", "executed", "executing", "exec", "invoke", "ran", "running", "runs"), "run"),
    **dict.fromkeys(("remove", "removes", "removed", "removing", "erase", "delete", "deletes", "deleted", "deleting"), "delete"),
    **dict.fromkeys(("written", "wrote", "writing", "writes"), "write"),
    **dict.fromkeys(("built", "building", "builds"), "build"),
    **dict.fromkeys(("sent", "sending", "sends"), "send"),
    **dict.fromkeys(("chose", "chosen", "choosing", "choose", "pick", "picked"), "choose"),
    **dict.fromkeys(("made", "making", "makes", "make"), "make"),
    **dict.fromkeys(("broke", "broken", "breaks", "breaking"), "break"),
    **dict.fromkeys(("read", "reads", "reading"), "read"),
    **dict.fromkeys(("put", "puts", "putting"), "put"),
    **dict.fromkeys(("failed", "fails", "failing", "failure", "failures"), "fail"),
    **dict.fromkeys(("manual", "manually"), "manually"),
    **dict.fromkeys(("automatic", "automatically", "auto"), "automatically"),
    **dict.fromkeys(("colour", "colours", "color", "colors"), "color"),
    **dict.fromkeys(("min", "minimum", "minimal"), "min"),
    **dict.fromkeys(("max", "maximum", "maximal"), "max"),
    **dict.fromkeys(("mail", "mails", "email", "emails", "e-mail", "e-mails"), "mail"),
    **dict.fromkeys(("grey", "gray"), "gray"),
    **dict.fromkeys(("artefact", "artefacts", "artifact", "artifacts"), "artifact"),
    **dict.fromkeys(("metre", "metres", "meter", "meters"), "meter"),
    **dict.fromkeys(("large", "larger", "big", "bigger"), "big"),
    **dict.fromkeys(("tiny", "small", "smaller"), "small"),
    **dict.fromkeys(("brief", "briefly", "short", "concise", "terse"), "short"),
}
#: Different words, mostly one meaning: whether here, too, is for somebody to say who knows what texts mean.
NEARLY = {
    word: group.split()[0]
    for group in (
        "start starts started starting begin begins began begun beginning commence",
        "finish finishes finished finishing complete completes completed completing",
        "fast faster quick quickly quicker rapid rapidly",
        "show shows shown showing showed display displays displayed displaying",
        "check checks checked checking verify verifies verified verifying",
        "choose select selects selected selecting",
        "answer answers answered answering reply replies replied replying respond responds responded responding",
        "fix fixes fixed fixing repair repairs repaired repairing mend mends mended",
        "bug bugs defect defects",
        "image images picture pictures",
        "holiday holidays vacation vacations",
        "explain explains explained explaining describe describes described describing",
        "help helps helped helping assist assists assisted assisting",
        "buy buys bought buying purchase purchases purchased purchasing",
    )
    for word in group.split()
}
_COUNTED = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
NUMBERS = {
    **{word: str(n) for n, word in enumerate(_COUNTED) if n != 1},
    "once": "1x",
    "twice": "2x",
}
UNITS = {
    **dict.fromkeys(("ms", "millisecond", "milliseconds", "msec"), "ms"),
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "s"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "minute"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "hour"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("week", "weeks"), "week"),
    **dict.fromkeys(("b", "byte", "bytes"), "byte"),
    **dict.fromkeys(("kb", "kib"), "kb"),
    **dict.fromkeys(("mb", "mib"), "mb"),
    **dict.fromkeys(("gb", "gib"), "gb"),
    **dict.fromkeys(("hz",), "hz"),
    **dict.fromkeys(("khz",), "khz"),
    **dict.fromkeys(("mhz",), "mhz"),
    **dict.fromkeys(("%", "percent"), "%"),
    **dict.fromkeys(("px", "pixel", "pixels"), "px"),
    **dict.fromkeys(("line", "lines"), "line"),
    **dict.fromkeys(("char", "chars", "character", "characters", "column", "columns"), "char"),
    **dict.fromkeys(("space", "spaces"), "space"),
    **dict.fromkeys(("time", "times", "x"), "times"),
    **dict.fromkeys(("v", "volt", "volts"), "volt"),
    **dict.fromkeys(("dbm",), "dbm"),
    **dict.fromkeys(("k",), "k"),
    **dict.fromkeys(("token", "tokens"), "token"),
    **dict.fromkeys(("row", "rows"), "row"),
    **dict.fromkeys(("retry", "retries"), "retry"),
    **dict.fromkeys(("worker", "workers"), "worker"),
    **dict.fromkeys(("thread", "threads"), "thread"),
    **dict.fromkeys(("reviewer", "reviewers"), "reviewer"),
}
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
