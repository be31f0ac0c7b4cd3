"""Rules of the house that no linter knows, checked on the syntax trees of the whole package.

A rule is a function from one file to its violations. Each comes with a planted violation, so that
a rule that can no longer fail is noticed, and with a harmless neighbour that it must let pass.
"""

from __future__ import annotations

import ast
import re
import socket
import string
import subprocess
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path, PurePosixPath

import pytest

import paddlecloud.errors
from paddlecloud.client.local_server import SERVER_PACKAGES
from paddlecloud.messages.tables import TEXTS
from paddlecloud.model import errors

TOP = Path(__file__).resolve().parents[2]
PACKAGE = TOP / "src" / "paddlecloud"
IGNORED_DIRECTORIES = {"__pycache__", "build", "demo-results", "dist", "node_modules"}

# Everything else gets its values as arguments. `cli` and `client/sdk.py` hand os.environ to the
# resolver; the two __main__ modules are where a process begins. `data` lives in a user's program.
READS_ENVIRONMENT = {
    "cli/launcher.py",
    "cli/main.py",
    "client/config/resolve.py",
    "client/sdk.py",
    "data/shard.py",
    "agent/__main__.py",
    "server/__main__.py",
    "server/settings.py",
}
MOST_FOLDER_LINES = 7
# Nouns that end in "ing".
NOUNS_IN_ING = {"listing", "overprovisioning", "routing", "staging", "string", "testing"}
# Where a reader begins, or what a user imports, though only neighbours do so here.
PLAIN_NAMES = (
    "agent/agent.py", "agent/log.py", "data/compat.py", "errors.py", "server/bootstrap.py",
    "server/caches.py", "server/metrics.py", "server/settings/values.py",
)  # fmt: skip
PURE = ("model/", "scheduler/")
STANDARD_LIBRARY_ONLY = (
    "agent/", "backends/", "cli/", "client/", "messages/", "model/", "net/", "scheduler/",
    "transfer/",
)  # fmt: skip
DOES_IO = {
    "asyncio", "fcntl", "http", "io", "multiprocessing", "os", "random", "secrets", "select",
    "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "tempfile", "threading",
}  # fmt: skip
ASKS_TIME = {
    "monotonic", "monotonic_ns", "now", "perf_counter", "perf_counter_ns", "process_time",
    "time", "time_ns", "today", "utcnow",
}  # fmt: skip
# Without their last argument these mean "now": gmtime(), localtime(), strftime(format).
MEANS_NOW_BELOW = {"gmtime": 1, "localtime": 1, "ctime": 1, "strftime": 2, "asctime": 1}
SLOW_TO_IMPORT = {
    "asyncio", "dataclasses", "http.client", "msgspec", "ssl", "subprocess", "typing",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file: its path (inside the package for code, inside the repository for text)."""

    path: str
    text: str

    @cached_property
    def nodes(self) -> list[ast.AST]:
        return list(ast.walk(ast.parse(self.text)))

    def calls(self) -> Iterator[tuple[str, ast.Call]]:
        """Every call with the last part of the called name: f() and x.f() are both "f"."""
        for node in self.nodes:
            if isinstance(node, ast.Call):
                yield _last_name(node.func), node

    def imports(self, *, with_names: bool = False) -> Iterator[tuple[str, int]]:
        """Modules; with names also what is imported from them, which may be a module itself."""
        for node in self.nodes:
            if isinstance(node, ast.Import):
                yield from ((alias.name, node.lineno) for alias in node.names)
            elif isinstance(node, ast.ImportFrom) and node.module:
                yield node.module, node.lineno
                if with_names:
                    yield from ((f"{node.module}.{a.name}", node.lineno) for a in node.names)


def module_has_a_docstring(source: Source) -> Iterator[str]:
    module = source.nodes[0]
    assert isinstance(module, ast.Module)
    if not ast.get_docstring(module):
        yield "line 1: say what this module is responsible for, and what not"


def folder_says_what_it_holds(source: Source) -> Iterator[str]:
    """The docstring of a folder: its subject, its entry points, what is not its business."""
    module = source.nodes[0]
    assert isinstance(module, ast.Module)
    lines = (ast.get_docstring(module) or "").splitlines()
    if source.path.endswith("/__init__.py") and len(lines) > MOST_FOLDER_LINES:
        yield f"line 1: {len(lines)} lines about a folder, at most {MOST_FOLDER_LINES}"


def internal_modules_stay_in_their_folder(source: Source) -> Iterator[str]:
    """`a/_b.py` is imported by its neighbours in `a/` alone, not by folders above or below."""
    folder = PurePosixPath("/", source.path).parent.as_posix()
    for module, line in source.imports(with_names=True):
        found = re.fullmatch(r"paddlecloud((?:\.\w+)*)\._[a-z]\w*", module)
        if found and folder != (found[1].replace(".", "/") or "/"):
            yield f"line {line}: {module} is internal to its folder"


def modules_are_named_by_nouns(source: Source) -> Iterator[str]:
    """A bare gerund (`keeping.py`) says how, and not what."""
    name = PurePosixPath(source.path).stem.lstrip("_")
    if name.endswith("ing") and "_" not in name and name not in NOUNS_IN_ING:
        yield f"line 1: {name} is a gerund; name the thing"


def only_the_model_sets_a_state(source: Source) -> Iterator[str]:
    """`Job.after` alone writes a job's state; the state of a replica is another thing."""
    if source.path == "model/jobs/job.py":
        return
    for name, call in source.calls():
        values = [keyword.value for keyword in call.keywords if keyword.arg == "state"]
        if name == "replace" and any("ReplicaState" not in ast.unparse(value) for value in values):
            yield f"line {call.lineno}: replace(…, state=…); use Job.after"
        if name == "__setattr__" and "'state'" in ast.unparse(call):
            yield f"line {call.lineno}: __setattr__ of a state; use Job.after"


def pure_packages_never_ask_the_time(source: Source) -> Iterator[str]:
    if not source.path.startswith(PURE):
        return
    for name, call in source.calls():
        is_method = isinstance(call.func, ast.Attribute)
        if (is_method and name in ASKS_TIME) or len(call.args) < MEANS_NOW_BELOW.get(name, 0):
            yield f"line {call.lineno}: {ast.unparse(call)} asks the time; take `now`"
    for node in source.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "time":
            for alias in node.names:
                if alias.name in ASKS_TIME:
                    yield f"line {node.lineno}: time.{alias.name} asks the time; take `now`"


def pure_packages_do_no_io(source: Source) -> Iterator[str]:
    if not source.path.startswith(PURE):
        return
    for module, line in source.imports():
        if module.split(".")[0] in DOES_IO:
            yield f"line {line}: {module} reaches outside; pass the value in"
    for name, call in source.calls():
        if name in ("open", "input", "print") and isinstance(call.func, ast.Name):
            yield f"line {call.lineno}: {name}() reaches outside; pass the value in"


def environment_is_read_at_the_edge(source: Source) -> Iterator[str]:
    if source.path in READS_ENVIRONMENT:
        return
    for node in source.nodes:
        named = isinstance(node, ast.Attribute) and node.attr in ("environ", "getenv")
        if named and ast.unparse(node) in ("os.environ", "os.getenv"):
            yield f"line {_line(node)}: {ast.unparse(node)}; take the value as an argument"
        if isinstance(node, ast.ImportFrom) and node.module == "os":
            names = {alias.name for alias in node.names} & {"environ", "getenv", "environb"}
            if names:
                yield f"line {node.lineno}: os.{min(names)}; take the value as an argument"


def client_side_is_standard_library_only(source: Source) -> Iterator[str]:
    if "/" in source.path and not source.path.startswith(STANDARD_LIBRARY_ONLY):
        return
    for module, line in source.imports():
        root = module.split(".")[0]
        if root != "paddlecloud" and root not in sys.stdlib_module_names:
            yield f"line {line}: {root} is not in the standard library"


def only_the_command_line_prints(source: Source) -> Iterator[str]:
    if source.path.startswith("cli/"):
        return
    for name, call in source.calls():
        if name == "print" and isinstance(call.func, ast.Name):
            yield f"line {call.lineno}: print(); log it, or return it to the command line"


def errors_have_their_sentence(source: Source) -> Iterator[str]:
    """Each code that is raised or stored has texts, and the call gives every value in them."""
    for name, call in source.calls():
        code = _code_of(name, call)
        if code is None:
            continue
        if code not in TEXTS:
            yield f"line {call.lineno}: {code!r} has no texts in messages/"
            continue
        given = _values_given(call)
        if given is not None and not placeholders(TEXTS[code][0]) <= given:
            missing = sorted(placeholders(TEXTS[code][0]) - given)
            yield f"line {call.lineno}: the sentence of {code!r} also needs {missing}"


def exceptions_to_rules_give_a_reason(source: Source) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        found = re.search(r"#\s*no" + r"qa\b(.*)", line)
        if found and not re.match(r": [A-Z]+\d+(, ?[A-Z]+\d+)* - \S", found[1]):
            yield f"line {number}: name the rule and say why: `: PLC0415 - the reason`"


def nothing_is_put_off(source: Source) -> Iterator[str]:
    yield from _matches(source, r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X:|HA" + r"CK)\b")


def no_path_of_a_developers_machine(source: Source) -> Iterator[str]:
    yield from _matches(
        source, r"(?<![\w.>}/$-])/(ro" + r"ot|wo" + r"rk|fa" + r"rm|Us" + r"ers/\w+)/"
    )


def no_registry_host(source: Source) -> Iterator[str]:
    hosts = ("pypi" + r"\.\w", "python" + "hosted", r"registry\." + r"npm", r"mirr" + r"ors?\.\w")
    yield from _matches(source, "|".join(hosts))


Rule = Callable[[Source], Iterator[str]]

# rule, path of the planted file, a text that breaks it, a text that does not
CODE_RULES: list[tuple[Rule, str, str, str]] = [
    (module_has_a_docstring, "db/a.py", "import os", '"""Why."""\nimport os'),
    (
        folder_says_what_it_holds,
        "db/__init__.py",
        '"""' + "Too long.\n" * 8 + '"""',
        '"""' + "As it is.\n" * 5 + '"""',
    ),
    (
        internal_modules_stay_in_their_folder,
        "server/routes/a.py",
        "from paddlecloud.db.engine import _writer",
        "from paddlecloud.db.engine import sqlite",
    ),
    (
        internal_modules_stay_in_their_folder,
        "db/a.py",
        "from paddlecloud.db.engine._writer import Writer",
        "from paddlecloud.db._writer import Writer",
    ),
    (
        only_the_model_sets_a_state,
        "server/services/jobs/kill.py",
        "job = replace(job, state=JobState.KILLED)",
        "replica = replace(replica, state=ReplicaState.EXITED)",
    ),
    (
        only_the_model_sets_a_state,
        "server/services/jobs/kill.py",
        "object.__setattr__(job, 'state', JobState.KILLED)",
        "object.__setattr__(job, 'reason', None)",
    ),
    (
        pure_packages_never_ask_the_time,
        "model/jobs/job.py",
        "at = datetime.now(UTC)",
        "at = datetime.fromtimestamp(now, UTC)",
    ),
    (pure_packages_never_ask_the_time, "scheduler/plan.py", "t = time.time()", "t = view.now"),
    (
        pure_packages_never_ask_the_time,
        "scheduler/plan.py",
        "from time import monotonic",
        "from time import gmtime",
    ),
    (
        pure_packages_never_ask_the_time,
        "model/protocol/bce_auth.py",
        "time.strftime('%Y')",
        "time.strftime('%Y', time.gmtime(at))",
    ),
    (
        pure_packages_do_no_io,
        "model/files/layout.py",
        "import os",
        "from pathlib import PurePosixPath",
    ),
    (pure_packages_do_no_io, "scheduler/plan.py", "open('x')", "view.open(job)"),
    (pure_packages_do_no_io, "scheduler/plan.py", "from subprocess import run", "import heapq"),
    (
        environment_is_read_at_the_edge,
        "db/engine/sqlite.py",
        "import os\nx = os.environ['HOME']",
        "import os\nx = os.path.join('a', 'b')",
    ),
    (
        environment_is_read_at_the_edge,
        "agent/agent.py",
        "from os import getenv",
        "from os import fork",
    ),
    (
        client_side_is_standard_library_only,
        "agent/agent.py",
        "import msgspec",
        "from paddlecloud.model.jobs import environment",
    ),
    (client_side_is_standard_library_only, "errors.py", "import starlette.routing", "import json"),
    (only_the_command_line_prints, "agent/agent.py", "print('hi')", "log.print('hi')"),
    (
        errors_have_their_sentence,
        "server/services/jobs/kill.py",
        "raise Invalid('no_such_code_anywhere')",
        "raise Unauthenticated('auth_missing')",
    ),
    (
        errors_have_their_sentence,
        "server/services/jobs/kill.py",
        "raise Unauthenticated('auth_unknown_key')",
        "raise Unauthenticated('auth_unknown_key', ak=ak)",
    ),
    (
        errors_have_their_sentence,
        "scheduler/plan.py",
        "Reason(code='auth_unknown_key', params={'key': ak})",
        "Reason(code='auth_unknown_key', params={'ak': ak})",
    ),
    (
        exceptions_to_rules_give_a_reason,
        "cli/main.py",
        "import x  # no" + "qa: PLC0415",
        "import x  # no" + "qa: PLC0415 - only doctor needs it",
    ),
    (exceptions_to_rules_give_a_reason, "cli/main.py", "x = 1  # no" + "qa", "x = 1  # a note"),
]
TEXT_RULES: list[tuple[Rule, str, str, str]] = [
    (nothing_is_put_off, "docs/a.md", "TO" + "DO: write this", "the to-do list of the user"),
    (no_path_of_a_developers_machine, "docs/a.md", "cd /ro" + "ot/x", "/pfs/dc/home/me/work/x"),
    (no_path_of_a_developers_machine, "a.py", "'/wo" + "rk/x'", "f'{root}/work/x'"),
    (no_registry_host, "a.lock", "https://pypi" + ".org/simple", "the registry of your pip"),
]
RULES = [*CODE_RULES, *TEXT_RULES]


@cache
def code_files() -> list[Source]:
    """Our code; the packaged examples are training code of users and look as theirs does."""
    return [
        Source(path=path.relative_to(PACKAGE).as_posix(), text=path.read_text(encoding="utf-8"))
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "examples"
    ]


@cache
def text_files() -> list[Source]:
    """Everything that is or could be committed and is text."""
    found = []
    for path in _walk(TOP):
        content = path.read_bytes()
        if b"\0" not in content:
            text = content.decode("utf-8", errors="replace")
            found.append(Source(path=path.relative_to(TOP).as_posix(), text=text))
    return found


def violations(rule: Rule, sources: list[Source]) -> list[str]:
    return [f"{source.path}: {found}" for source in sources for found in rule(source)]


def internal_modules_without_underscore(sources: list[Source]) -> list[str]:
    """Modules with a plain name that only their neighbours import. Commands and routes are found by
    their names, and those of PLAIN_NAMES are where a reader begins."""
    users: dict[str, set[str]] = {}
    for source in sources:
        folder = source.path.rpartition("/")[0]
        for module, _ in source.imports(with_names=True):
            path = module.removeprefix("paddlecloud.").replace(".", "/") + ".py"
            users.setdefault(path, set()).add(folder)
    return [
        source.path
        for source in sources
        if not PurePosixPath(source.path).name.startswith("_")
        and users.get(source.path) == {source.path.rpartition("/")[0]}
        and not source.path.startswith(("cli/", *PLAIN_NAMES))
    ]


def test_internal_modules_have_an_underscore() -> None:
    planted = [
        Source(path="db/a.py", text="from paddlecloud.db import b, c"),
        Source(path="db/b.py", text=""),
        Source(path="db/c.py", text=""),
        Source(path="net/d.py", text="from paddlecloud.db.c import x"),
    ]
    assert internal_modules_without_underscore(planted) == ["db/b.py"]
    assert internal_modules_without_underscore(code_files()) == []


def test_a_module_named_by_a_gerund_is_found() -> None:
    planted = [Source(path="db/keeping.py", text=""), Source(path="db/log_capture.py", text="")]
    assert len(violations(modules_are_named_by_nouns, planted)) == 1
    assert violations(modules_are_named_by_nouns, code_files()) == []


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, *_ in CODE_RULES))
def test_the_code_follows(rule: Rule) -> None:
    assert violations(rule, code_files()) == []


@pytest.mark.parametrize("rule", dict.fromkeys(rule for rule, *_ in TEXT_RULES))
def test_the_repository_follows(rule: Rule) -> None:
    assert violations(rule, text_files()) == []


def test_the_tests_give_reasons_too() -> None:
    tests = [source for source in text_files() if re.match(r"(tests|bench)/.*\.py$", source.path)]
    assert len(tests) > 1
    assert violations(exceptions_to_rules_give_a_reason, tests) == []


@pytest.mark.parametrize(("rule", "path", "planted", "harmless"), RULES)
def test_a_planted_violation_is_found(rule: Rule, path: str, planted: str, harmless: str) -> None:
    assert len(violations(rule, [Source(path=path, text=planted)])) == 1
    assert violations(rule, [Source(path=path, text=harmless)]) == []


def test_the_model_itself_may_set_a_state() -> None:
    text = "job = replace(job, state=JobState.KILLED)"
    assert (
        violations(only_the_model_sets_a_state, [Source(path="model/jobs/job.py", text=text)]) == []
    )


ENGLISH_WORDS = re.compile(r"\b(?:an|and|is|it|not|of|or|such|the|to|with)\b")
"""What only an English sentence has; names of flags, states, files and programs have none."""


def sentence_problems(code: str, en: str, zh: str) -> list[str]:
    """What is wrong with the two sentences of one code."""
    found = []
    if placeholders(en) != placeholders(zh):
        found.append(f"{code}: en has {placeholders(en)}, zh has {placeholders(zh)}")
    if not re.search(r"[\u4e00-\u9fff]", zh):
        found.append(f"{code}: the zh sentence is not Chinese")
    if ENGLISH_WORDS.search(re.sub(r"`[^`]*`", "", zh)):
        found.append(f"{code}: the zh sentence is English in part")
    if not en.strip() or re.search(r"[\u4e00-\u9fff]", en):
        found.append(f"{code}: the en sentence is not English")
    return found


def unused(codes: set[str], sources: list[Source]) -> set[str]:
    """Codes that no module outside the message tables names: whole, or by a first part like
    "help_" or "field_letters"."""
    named = {
        node.value
        for source in sources
        if not source.path.startswith("messages/_") or source.path == "messages/__init__.py"
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    prefixes = tuple(
        value for value in named if re.fullmatch(r"[a-z]{4,}_([a-z]+_)?|field_[a-z]+", value)
    )
    return {code for code in codes - named if not code.startswith(prefixes)}


def test_every_sentence_exists_in_both_languages_with_the_same_values() -> None:
    assert [p for code, (en, zh) in TEXTS.items() for p in sentence_problems(code, en, zh)] == []


@pytest.mark.parametrize(
    ("en", "zh"),
    [
        ("port {port}", "端口 {prt}"),
        ("port", "port"),
        ("a number of seconds", "应为 a number of seconds"),
        ("端口", "端口"),
        ("", "端口"),
    ],
    ids=["another placeholder", "not translated", "half translated", "not English", "empty"],
)
def test_a_planted_bad_sentence_is_found(en: str, zh: str) -> None:
    assert len(sentence_problems("code", en, zh)) == 1
    assert sentence_problems("code", "port {port} of {host}", "{host} 的端口 {port}") == []


def forms_without_words(sources: list[Source], codes: set[str]) -> list[str]:
    """What the value of a setting has to be is said in both languages, so it is a code."""
    return [
        node.value
        for source in sources
        if source.path.startswith("server/settings/")
        for node in source.nodes
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value.startswith("want_") and node.value not in codes
    ]


def test_every_form_of_a_setting_has_words() -> None:
    assert forms_without_words(code_files(), set(TEXTS)) == []


def test_a_planted_form_without_words_is_found() -> None:
    planted = Source(path="server/settings/validate.py", text="wanted('want_a'); wanted('want_b')")
    assert forms_without_words([planted], {"want_a"}) == ["want_b"]


def test_every_sentence_is_used() -> None:
    assert sorted(unused(set(TEXTS), code_files())) == []


def test_a_planted_unused_sentence_is_found() -> None:
    sources = [
        Source(path="messages/_general.py", text="TEXTS = {'a': (), 'b': (), 'help_a': ()}"),
        Source(path="server/http/app.py", text="raise Invalid('a', 'help_' + name)"),
    ]
    assert unused({"a", "b", "help_a"}, sources) == {"b"}


def test_the_public_errors_are_the_whole_tree() -> None:
    assert set(paddlecloud.errors.__all__) == ERROR_NAMES
    assert paddlecloud.errors.Retry is errors.Retry


def test_the_public_names_can_be_imported() -> None:
    for name in paddlecloud.__all__:
        assert getattr(paddlecloud, name) is not None
    with pytest.raises(AttributeError, match="no_such_name"):
        _ = getattr(paddlecloud, "no_such_" + "name")


HELP = "sys.argv = ['paddlecloud', '--help']; from paddlecloud.cli.main import main; main()"


def test_the_command_line_starts_without_heavy_imports() -> None:
    """Each of these modules costs 10 to 70 ms; `paddlecloud --help` has about 55 in all."""
    assert heavy_imports(HELP) == set()


def test_a_planted_heavy_import_is_found() -> None:
    assert heavy_imports("import dataclasses, http.client") >= {"dataclasses", "http.client"}


def heavy_imports(program: str) -> set[str]:
    """Which of SLOW_TO_IMPORT a fresh interpreter has loaded when `program` is over."""
    wrapped = (
        f"import sys\nbefore = set(sys.modules)\ntry:\n    {program}\nexcept SystemExit: pass\n"
        "sys.stdout.flush()\nprint('\\n'.join(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-P", "-c", wrapped], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return SLOW_TO_IMPORT & set(done.stderr.split())


@pytest.mark.parametrize(
    ("family", "host"),
    [
        (socket.AF_INET, "192.0.2.1"),
        (socket.AF_INET, "a.example"),
        (socket.AF_INET6, "2001:db8::1"),
    ],
)
def test_no_test_reaches_beyond_this_machine(family: socket.AddressFamily, host: str) -> None:
    with socket.socket(family) as outside, pytest.raises(AssertionError, match="only loopback"):
        outside.connect((host, 80))


PIN = re.compile(r"^([a-z0-9-]+)==([^ ;\\]+)( ; [^\\]+?)? \\$")


def pins(text: str) -> dict[str, str]:
    """Name to version of a lock file; anything but pins and hashes is refused."""
    found = {}
    for line in text.splitlines():
        pin = PIN.match(line)
        if pin:
            found[pin[1]] = pin[2]
        elif not re.fullmatch(r"    --hash=sha256:[0-9a-f]{64}( \\)?", line):
            raise AssertionError(f"neither a pin nor a hash: {line!r}")
    return found


def test_the_lock_files_agree_with_each_other_and_with_the_project() -> None:
    server = pins((TOP / "requirements.lock").read_text())
    postgres = pins((TOP / "requirements-postgres.lock").read_text())
    everything = pins((TOP / "requirements-dev.lock").read_text())
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]

    def names(requirements: list[str]) -> set[str]:
        return {re.split(r"[^\w-]", requirement)[0] for requirement in requirements}

    assert project["project"]["dependencies"] == []
    assert names(extras["server"]) <= set(server)
    assert names(extras["postgres"]) | {"psycopg-binary"} <= set(postgres)
    assert names(project["dependency-groups"]["dev"]) <= set(everything)
    assert server.items() <= postgres.items() <= everything.items()


def test_the_client_knows_what_a_server_needs() -> None:
    project = tomllib.loads((TOP / "pyproject.toml").read_text())
    server = project["project"]["optional-dependencies"]["server"]
    names = {re.split(r"[^\w-]", requirement)[0].replace("-", "_") for requirement in server}
    imported = {"google_re2": "re2", "PyYAML": "yaml"}
    assert set(SERVER_PACKAGES) == {imported.get(name, name) for name in names}


def test_the_container_image_installs_nothing_that_is_not_locked() -> None:
    lines = (TOP / "deploy" / "Dockerfile").read_text().splitlines()
    installs = [line for line in lines if "pip install" in line]
    assert "--require-hashes -r requirements-postgres.lock" in installs[0]
    assert [line for line in installs[1:] if "--no-deps" not in line] == []


@pytest.mark.parametrize("line", ["--index-url x", "a @ file:///a", "a==1", "a>=1 \\"])
def test_a_planted_bad_lock_line_is_found(line: str) -> None:
    with pytest.raises(AssertionError, match="neither a pin nor a hash"):
        pins(line)


def placeholders(sentence: str) -> set[str]:
    return {name for _, name, _, _ in string.Formatter().parse(sentence) if name is not None}


def _error_names(kind: type[errors.PaddleCloudError]) -> set[str]:
    return {kind.__name__}.union(*map(_error_names, kind.__subclasses__()))


ERROR_NAMES = _error_names(errors.PaddleCloudError)


def _code_of(name: str, call: ast.Call) -> str | None:
    candidates = call.args[:1] if name in ERROR_NAMES else []
    if name == "Reason":
        candidates = [keyword.value for keyword in call.keywords if keyword.arg == "code"]
    for value in candidates:
        if isinstance(value, ast.Constant) and isinstance(value.value, str):
            return value.value
    return None


def _values_given(call: ast.Call) -> set[str] | None:
    """The names of the values given to a sentence, or None where only the run will tell."""
    given: set[str] = set()
    for keyword in call.keywords:
        if keyword.arg == "params" and isinstance(keyword.value, ast.Dict):
            given |= {str(ast.literal_eval(key)) for key in keyword.value.keys if key is not None}
            if None in keyword.value.keys:
                return None
        elif keyword.arg is None or keyword.arg == "params":
            return None
        else:
            given.add(keyword.arg)
    return given


def _line(node: ast.AST) -> int:
    return int(getattr(node, "lineno", 0))


def _last_name(node: ast.expr) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _matches(source: Source, pattern: str) -> Iterator[str]:
    for number, line in enumerate(source.text.splitlines(), 1):
        found = re.search(pattern, line)
        if found:
            yield f"line {number}: {found[0]}"


def _walk(directory: Path) -> Iterator[Path]:
    for path in sorted(directory.iterdir()):
        hidden = path.name.startswith(".") and path.name not in (".ci", ".gitignore", ".github")
        if hidden or path.name in IGNORED_DIRECTORIES or path.is_symlink():
            continue
        if path.is_dir():
            yield from _walk(path)
        elif path.is_file():
            yield path
