"""Random statements: typed trees of forms, columns and literals."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from bench.differ.aggregates import AGGREGATES
from bench.differ.form import KEPT, Form
from bench.differ.forms import FORMS
from bench.differ.literals import LITERALS
from bench.differ.table import KINDS

_BY_KIND: dict[str, tuple[Form, ...]] = {
    kind: tuple(form for form in FORMS if form.kind == kind) for kind in {f.kind for f in FORMS}
}
_COLUMNS = frozenset(name for names in KINDS.values() for name in names)


_GUARDS = {
    "CASE WHEN {} THEN {} ELSE {} END": {1: "{0}", 2: "({0}) IS NOT TRUE"},
    "CASE WHEN {} THEN {} WHEN {} THEN {} END": {
        1: "{0}",
        2: "({0}) IS NOT TRUE",
        3: "({0}) IS NOT TRUE AND {2}",
    },
    "CASE {} WHEN {} THEN {} ELSE {} END": {2: "{0} = {1}", 3: "({0} = {1}) IS NOT TRUE"},
    "if({}, {}, {})": {1: "{0}", 2: "({0}) IS NOT TRUE"},
    "coalesce({}, {})": {1: "{0} IS NULL"},
    "ifnull({}, {})": {1: "{0} IS NULL"},
}
"""When a choice computes its later parts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """A form with what fills its holes; a column or a literal has no parts."""

    form: Form
    parts: tuple[Tree, ...] = ()

    @property
    def kind(self) -> str:
        """The kind of its value."""
        return self.form.kind

    @property
    def text(self) -> str:
        """The SQL that Penstock reads."""
        return self._filled(self.form.text, lambda part: part.text)

    def judged(self, names: frozenset[str] = frozenset()) -> str:
        """Return the SQL that DuckDB reads; with ``names``, these differences are made up for."""
        form = self.form
        wide = (
            form.meant == "real"
            and "/" not in form.text
            and any(part.text.isdigit() for part in self.parts)
        )
        made_up = form.meant in names and form.alike and not wide  # a literal widens no REAL
        told = form.alike if made_up else form.judge or form.text
        return self._filled(told, lambda part: part.judged(names))

    def _filled(self, text: str, of: Callable[[Tree], str]) -> str:
        return text.format(*[of(part) for part in self.parts]) if self.parts else text

    def walk(self) -> Iterator[Tree]:
        """Return this tree and all parts of it."""
        yield self
        for part in self.parts:
            yield from part.walk()

    def computed(self) -> Iterator[Tree]:
        """Return the parts that SQL computes; those of a choice, for the rows that choose them."""
        for i, part in enumerate(self.parts):
            if i < self.form.always:
                yield part
                yield from part.computed()
            elif guard := _GUARDS.get(self.form.text, {}).get(i):
                for inner in (part, *part.computed()):
                    chosen = f"CASE WHEN {guard} THEN {{{len(self.parts)}}} END"
                    form = Form(kind=inner.kind, text=chosen, parts=())
                    yield Tree(form=form, parts=(*self.parts, inner))

    @property
    def columns(self) -> frozenset[str]:
        """The columns that it reads."""
        leaves = {tree.form.text for tree in self.walk() if not tree.parts}
        return frozenset(leaves & _COLUMNS)

    @property
    def meant(self) -> frozenset[str]:
        """The names of the differences that its forms have."""
        kept = frozenset({KEPT} if self.form.keeps else ())
        return kept | frozenset(tree.form.meant for tree in self.walk() if tree.form.meant)


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """One value, of each row or of each group."""

    tree: Tree
    grouped: bool = False

    @property
    def text(self) -> str:
        """What it asks, as a user would write it."""
        return f"SELECT {self.tree.text}" + (" GROUP BY k, TUMBLE" if self.grouped else "")


def leaf(kind: str, text: str) -> Tree:
    """Return a column or a literal; DuckDB must not see that it is NULL, or it looks no further."""
    hidden = f"(CASE WHEN id < 0 THEN {text} END)" if text.startswith("CAST(NULL") else ""
    return Tree(form=Form(kind=kind, text=text, parts=(), judge=hidden))


def statements(count: int, seed: int) -> Iterator[Statement]:
    """Return random statements, always the same ones for a seed.

    Every form is at the root of a statement before any is for the second time, so that rare ones
    are seen too.
    """
    rng = random.Random(seed)
    turn: list[Form] = []
    for _ in range(count):
        if not turn:
            turn = [*FORMS, *AGGREGATES]
            rng.shuffle(turn)
        yield _statement(turn.pop(), rng)


def _statement(form: Form, rng: random.Random) -> Statement:
    grouped = form in AGGREGATES
    return Statement(tree=_fill(form, rng, rng.choice((1, 1, 2, 2, 3))), grouped=grouped)


def _fill(form: Form, rng: random.Random, depth: int) -> Tree:
    return Tree(form=form, parts=tuple(_tree(kind, rng, depth - 1) for kind in form.parts))


def _tree(kind: str, rng: random.Random, depth: int) -> Tree:
    forms = _BY_KIND.get(kind, ())
    if depth > 0 and forms and rng.random() < 0.8:
        return _fill(rng.choice(forms), rng, depth)
    return leaf(kind, rng.choice(leaves(kind, rng)))


def leaves(kind: str, rng: random.Random) -> tuple[str, ...]:
    """Return columns or literals of a kind."""
    columns = KINDS.get(kind, ())
    return columns if columns and rng.random() < 0.7 else LITERALS[kind]


def smaller(tree: Tree) -> Iterator[Tree]:
    """Return simpler trees of the same kind: parts of it, and it with a simpler part."""
    seen = [part for part in tree.walk() if part is not tree and part.kind == tree.kind]
    yield from seen
    if tree.parts:
        yield from (leaf(tree.kind, name) for name in KINDS.get(tree.kind, ()))
    for i, part in enumerate(tree.parts):
        if part.kind.startswith("#"):
            continue
        for simpler in smaller(part):
            yield replace(tree, parts=(*tree.parts[:i], simpler, *tree.parts[i + 1 :]))
