"""Mutants of a Python module: the same source with one small change that should matter.

MUT1  A mutant changes one expression or statement, and leaves all other bytes as they are.
MUT2  Annotations, docstrings, imports, `__slots__`, `slots=` and type checking are never changed,
      since no test can see them.
"""

from __future__ import annotations

import ast
import copy
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
UNSEEN_NAMES = {"__slots__", "__all__", "TYPE_CHECKING"}
CALLS = {"min": "max", "max": "min", "any": "all", "all": "any"}


class Mutant(NamedTuple):
    """One change of one file."""

    path: str
    line: int
    rule: str
    before: str
    """The source of the expression or statement, in one line."""
    after: str
    source: str
    """The whole file with the change."""
    text: str
    """Its first line as it is in the file."""

    @property
    def name(self) -> str:
        """The change and its line of code, without the line number, which changes with every
        edit."""
        return f"{self.path}: {self.rule}: {self.before} -> {self.after} in: {self.text}"


def mutants(path: str, source: str) -> Iterator[Mutant]:
    """All mutants of a file."""
    lines = source.encode().splitlines(keepends=True)
    starts = [0]
    for line in lines:
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    skipped = set(map(id, _unseen(tree)))
    tests = {id(one.test) for one in ast.walk(tree) if isinstance(one, ast.If | ast.While)}
    for node in ast.walk(tree):
        if id(node) in skipped or not isinstance(node, ast.expr | ast.stmt):
            continue
        begin = starts[node.lineno - 1] + node.col_offset
        end = starts[(node.end_lineno or 0) - 1] + (node.end_col_offset or 0)
        before = source.encode()[begin:end]
        changes = list(_changes(node))
        if id(node) in tests and isinstance(node, ast.expr):
            changes.append(("condition", ast.UnaryOp(ast.Not(), node)))
        for rule, changed in changes:
            text = ast.unparse(changed)
            after = f"({text})" if isinstance(node, ast.expr) else text
            whole = source.encode()[:begin] + after.encode() + source.encode()[end:]
            yield Mutant(path, node.lineno, rule, _flat(before.decode()), _flat(text),
                         whole.decode(), _flat(lines[node.lineno - 1].decode()))  # fmt: skip


def _flat(text: str) -> str:
    return " ".join(text.split())


def _unseen(tree: ast.Module) -> Iterator[ast.AST]:
    """The nodes that MUT2 names, with everything in them."""
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and isinstance(node.test, ast.Name | ast.Attribute):
            name = node.test.id if isinstance(node.test, ast.Name) else node.test.attr
            if name == "TYPE_CHECKING":
                yield from ast.walk(node)
        if isinstance(node, ast.AnnAssign | ast.arg) and node.annotation is not None:
            yield from ast.walk(node.annotation)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.returns is not None:
            yield from ast.walk(node.returns)
        if isinstance(node, ast.Import | ast.ImportFrom):
            yield from ast.walk(node)
        if isinstance(node, ast.Assign) and _names(node) & UNSEEN_NAMES:
            yield from ast.walk(node)
        if isinstance(node, ast.keyword) and node.arg == "slots":
            yield from ast.walk(node)
        if isinstance(node, ast.JoinedStr):
            yield from ast.walk(node)  # positions inside of them are not those of the file
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            yield from ast.walk(node)  # docstrings, `...`


def _names(node: ast.Assign) -> set[str]:
    return {target.id for target in node.targets if isinstance(target, ast.Name)}


def _changes(node: ast.AST) -> Iterator[tuple[str, ast.AST]]:
    match node:
        case ast.Compare(ops=ops):
            for place, operator in enumerate(ops):
                changed = copy.deepcopy(node)
                changed.ops[place] = SWAPPED[type(operator)]()
                yield "comparison", changed
        case ast.BoolOp():
            changed_bool = copy.deepcopy(node)
            changed_bool.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
            yield "and/or", changed_bool
        case ast.IfExp(test=test):
            changed_choice = copy.deepcopy(node)
            changed_choice.test = ast.UnaryOp(ast.Not(), test)
            yield "condition", changed_choice
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            yield "not", operand
        case ast.Call(func=ast.Name(id=name)) if name in CALLS:
            changed_call = copy.deepcopy(node)
            changed_call.func = ast.Name(CALLS[name])
            yield "call", changed_call
        case ast.Constant(value=value) if type(value) is int:
            yield "constant", ast.Constant(value + 1)
            yield "constant", ast.Constant(value - 1)
        case ast.Constant(value=value) if type(value) is bool:
            yield "constant", ast.Constant(not value)
        case ast.Subscript(slice=ast.Slice()):
            yield from _slices(node)
        case ast.Expr(value=ast.Call()) | ast.AugAssign():
            yield "dropped", ast.Pass()


def _slices(node: ast.Subscript) -> Iterator[tuple[str, ast.AST]]:
    for end in ("lower", "upper"):
        changed = copy.deepcopy(node)
        found = getattr(changed.slice, end)
        if found is not None and not isinstance(found, ast.Constant):
            setattr(changed.slice, end, ast.BinOp(found, ast.Add(), ast.Constant(1)))
            yield "slice", changed
