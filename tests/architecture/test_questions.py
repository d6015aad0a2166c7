"""A question never changes a row: what is only considered is passed as a value.

Whoever sets a field to ask "what if" and sets it back leaves a job that says something false in
between, to every function that is called and to whatever is raised.
"""

import ast
from collections.abc import Iterator

from tests.support.sources.source_tree import source_files

GANG_NEED = "GangNeed"
OWN_GANG = {"market_mode", "gang_need"}

SET_BACK = """
def can_begin(job, market):
    before, job.market_mode = job.market_mode, market
    judged = offers_for(job)
    job.market_mode = before
    return judged
"""
SET_BACK_TOGETHER = """
def ask_in(job, market, count):
    before = job.market_mode, job.node_count
    try:
        job.market_mode, job.node_count = market, count
        return request(job)
    finally:
        job.market_mode, job.node_count = before
"""
SET_BACK_BY_THE_CALLER = """
def largest(aggregate):
    chosen, limits = aggregate.job.node_count, aggregate.limits
    while make_smaller(aggregate):
        pass
    aggregate.job.node_count = chosen
"""
READS_ITS_OWN = """
def candidates(aggregate, gang: GangNeed):
    return [one for one in aggregate.usable() if one.market is aggregate.job.market_mode]

def missing(aggregate, gang: GangNeed):
    return aggregate.job.node_count - len(aggregate.members)
"""


def test_no_field_is_set_in_order_to_ask_and_set_back() -> None:
    assert [
        f"{file.name}:{line}: {field}"
        for file in source_files()
        if file.room in ("app", "workers")
        for line, field in _set_back(file.tree)
    ] == []


def test_who_is_asked_about_a_gang_reads_nothing_of_it_from_the_job() -> None:
    assert [
        f"{file.name}:{line}: {field}"
        for file in source_files()
        if file.room == "app"
        for line, field in _read_from_the_job(file.tree)
    ] == []


def test_both_rules_find_what_they_are_for() -> None:
    assert list(_set_back(ast.parse(SET_BACK))) == [(5, "market_mode")]
    together = list(_set_back(ast.parse(SET_BACK_TOGETHER)))
    assert together == [(8, "market_mode"), (8, "node_count")]
    assert list(_set_back(ast.parse(SET_BACK_BY_THE_CALLER))) == [(6, "node_count")]
    asked = list(_read_from_the_job(ast.parse(READS_ITS_OWN)))
    assert asked == [(3, "market_mode"), (6, "node_count")]


def _functions(tree: ast.Module) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def _set_back(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, field) where a field gets the value that the same function read from it before."""
    for function in _functions(tree):
        kept: dict[str, set[str]] = {}
        assigned = (node for node in ast.walk(function) if isinstance(node, ast.Assign))
        for node in sorted(assigned, key=lambda one: one.lineno):
            for target, value in _pairs(node):
                if isinstance(target, ast.Name):
                    kept.setdefault(target.id, set()).update(_fields_of(value))
                elif (
                    isinstance(target, ast.Attribute)
                    and isinstance(value, ast.Name)
                    and target.attr in kept.get(value.id, ())
                    and not target.attr.startswith("_")  # what an object keeps to itself is no row
                ):
                    yield node.lineno, target.attr


def _pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Each target with its value; all targets with a value that is not spelt out."""
    for target in node.targets:
        if not isinstance(target, ast.Tuple):
            yield target, node.value
        elif isinstance(node.value, ast.Tuple) and len(target.elts) == len(node.value.elts):
            yield from zip(target.elts, node.value.elts, strict=True)
        else:
            yield from ((one, node.value) for one in target.elts)


def _fields_of(value: ast.expr) -> set[str]:
    parts = value.elts if isinstance(value, ast.Tuple) else [value]
    return {part.attr for part in parts if isinstance(part, ast.Attribute)}


def _read_from_the_job(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """(line, field) where a function that is given a gang looks at the job's own instead."""
    for function in _functions(tree):
        arguments = [*function.args.args, *function.args.kwonlyargs]
        if not any(_is_gang(argument) for argument in arguments):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.Attribute) and (
                node.attr in OWN_GANG or (node.attr == "node_count" and _is_job(node.value))
            ):
                yield node.lineno, node.attr


def _is_gang(argument: ast.arg) -> bool:
    annotation = argument.annotation
    return isinstance(annotation, ast.Name) and annotation.id == GANG_NEED


def _is_job(owner: ast.expr) -> bool:
    name = owner.attr if isinstance(owner, ast.Attribute) else getattr(owner, "id", "")
    return name == "job"
