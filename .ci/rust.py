"""A lexer of Rust for the scripts of this folder: literals, comments, tests and modules of source files."""

import re

TOKEN = re.compile(
    r"""
      (?P<line>//[^\n]*)
    | (?P<block>/\*)
    | (?P<raw>\b(?P<prefix>b|c)?r(?P<hashes>\#*)"(?P<raw_text>.*?)"(?P=hashes))
    | (?P<text>\b[bc]?"(?:[^"\\]|\\.)*"|"(?:[^"\\]|\\.)*")
    | (?P<char>\bb?'(?:[^'\\\n]|\\(?:u\{[0-9a-fA-F_]+\}|x[0-9a-fA-F]{2}|.))'|'(?:[^'\\\n]|\\(?:u\{[0-9a-fA-F_]+\}|x[0-9a-fA-F]{2}|.))')
    | (?P<open>[\[({])
    | (?P<close>[\])}])
    | (?P<attribute>\#!?(?=\[))
    | (?P<end>;)
    """,
    re.DOTALL | re.VERBOSE,
)
MODULE = re.compile(r"(?:pub(?:\([^)]*\))?\s+)?mod\s+([A-Za-z0-9_]+)\s*;")
TEST = re.compile(r"\[\s*(?:cfg\s*\(\s*(?:test\b|fuzzing\b|all\s*\(\s*test\b)|(?:\w+::)*test\b)")


def blank(text):
    """Replaces all characters except line breaks with spaces."""
    return re.sub(r"[^\n]", " ", text)


def block_end(source, at):
    """Returns the end of a block comment, which may contain block comments."""
    depth = 0
    for found in re.compile(r"/\*|\*/").finditer(source, at):
        depth += 1 if found.group() == "/*" else -1
        if depth == 0:
            return found.end()
    return len(source)


class Scan:
    """One pass over a Rust file. All positions are pairs of start and end."""

    def __init__(self, source):
        self.source = source
        self.literals = []  # outside of tests and of parts without prose: (start, end, escaped), without quotes
        self.comments = []
        self.texts = []  # all literals, with quotes
        self.tests = []  # items of tests
        self.test_modules = []  # names of modules of tests in separate files
        self.run()

    def tokens(self, at):
        while found := TOKEN.search(self.source, at):
            at = found.end() if found.lastgroup != "block" else block_end(self.source, found.start())
            yield found.lastgroup, found, at

    def run(self):
        depth = 0
        attribute = None  # (depth, start) of the open attribute
        test = None  # (depth, start) of the test item
        off = False
        for kind, found, end in self.tokens(0):
            # `lastgroup` ignores nested groups.
            if kind in ("line", "block"):
                self.comments.append((found.start(), end))
            elif kind in ("raw", "text", "char"):
                self.texts.append((found.start(), end))
            if kind == "line":
                if "<!-- vale off -->" in found.group():
                    off = True
                elif "<!-- vale on -->" in found.group():
                    off = False
            elif kind == "attribute" and attribute is None:
                attribute = (depth, found.end())
            elif kind == "open":
                depth += 1
            elif kind == "close":
                depth -= 1
                if attribute is not None and depth == attribute[0]:
                    text = self.source[attribute[1] : end]
                    start, attribute = attribute[1] - 1, None
                    if TEST.match(text) and test is None:
                        test = (depth, start)
                        item = re.sub(r"^(?:\s|//[^\n]*\n|#\[[^\]]*\])*", "", self.source[end:])
                        if module := MODULE.match(item):
                            self.test_modules.append(module.group(1))
                elif test is not None and (depth < test[0] or (found.group() == "}" and depth == test[0])):
                    self.tests.append((test[1], end))
                    test = None
            elif kind == "end":
                if test is not None and attribute is None and depth == test[0]:
                    self.tests.append((test[1], end))
                    test = None
            elif kind in ("raw", "text") and test is None and not off:
                if kind == "raw" and found.group("prefix") is None:
                    self.literals.append((found.start("raw_text"), found.end("raw_text"), False))
                elif kind == "text" and found.group().startswith('"'):
                    self.literals.append((found.start() + 1, end - 1, True))

    def code(self, *without):
        """Returns the source with spaces in place of the parts in lists of positions."""
        out, at = [], 0
        for start, end in sorted(part for parts in without for part in parts):
            if end > at:
                out += [self.source[at : max(at, start)], blank(self.source[max(at, start) : end])]
                at = end
        return "".join(out) + self.source[at:]


def test_files(scans):
    """Returns the possible files and folders of the modules that files declare as tests."""
    tests = set()
    for path, scan in scans.items():
        folder = path.parent if path.name in ("mod.rs", "lib.rs", "main.rs") else path.with_suffix("")
        tests.update(part for name in scan.test_modules for part in (folder / f"{name}.rs", folder / name))
    return tests


def scans_of(files):
    """Returns the scans of Rust files, and the paths of those that are tests."""
    scans = {path: Scan(path.read_text(encoding="utf-8")) for path in files}
    tests = test_files(scans)
    return scans, {path for path in scans if path in tests or any(parent in tests for parent in path.parents)}
