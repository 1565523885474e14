"""Finds which blocks of the documentation a test asks for, in its code alone."""

from __future__ import annotations

import ast
from collections import defaultdict
from itertools import product

_ASKS = {"documented", "named", "parts"}  # Of what tests of frameworks share.


def asked_for(code):
    """Return the pages and the names of blocks that calls in the code of a test ask for.

    Arguments are strings, or names for what loops, parameters of tests and calls give them.
    """
    tree = ast.parse(code)
    calls = _calls(tree)
    bound = _bound(tree, calls)
    blocks = set()
    for call in (call for function in _ASKS for call in calls[function]):
        page, *names = (_strings(argument, bound) for argument in call.args)
        blocks.update(product(page, (name for several in names for name in several)))
    return blocks


def _calls(tree):
    """Return the calls of each function."""
    calls = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Name(id=function)):
                calls[function].append(node)
    return calls


def _bound(tree, calls):
    """Return the expressions that each name may stand for."""
    bound = defaultdict(list)
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value):
                bound[name].append(value)
            case ast.For(target=ast.Name(id=name), iter=several):
                bound[name].append(several)
            case ast.comprehension(target=ast.Name(id=name), iter=several):
                bound[name].append(several)
            case ast.Call(
                func=ast.Attribute(attr="parametrize"),
                args=[ast.Constant(value=str(name)), several, *_],
            ):
                bound[name].append(several)
            case ast.FunctionDef(name=function, args=ast.arguments(args=parameters)):
                for call in calls[function]:
                    for parameter, argument in zip(parameters, call.args, strict=False):
                        bound[parameter.arg].append(argument)
    return bound


def _strings(node, bound):
    """Return the strings that an expression may be, or hold."""
    match node:
        case ast.Constant(value=str(text)):
            return [text]
        case ast.Name(id=name):
            outer = {**bound, name: []}  # A name may be made of itself.
            return [text for value in bound.get(name, []) for text in _strings(value, outer)]
        case ast.Tuple(elts=items) | ast.List(elts=items):
            return [text for item in items for text in _strings(item, bound)]
        case ast.JoinedStr(values=pieces):
            return ["".join(some) for some in product(*(_strings(p, bound) for p in pieces))]
        case ast.FormattedValue(value=value):
            return _strings(value, bound)
    return []
