"""Fuse subqueries that need no shuffle between them, and lay the rest out in stages.

Law: subqueries are fused only where both have one instance, so a fused edge moves no row to another
task; a payload always goes to a later stage.
"""

from __future__ import annotations

from dataclasses import replace

from penstock.plan.compiled import CompiledQuery, Unit


def fuse_units(query: CompiledQuery) -> CompiledQuery:
    """Return the query with its units; each is one task per instance in one stage."""
    groups: list[list[int]] = []
    group_of: dict[int, int] = {}
    for subquery in query.subqueries:
        feeding = {group_of[edge.from_subquery] for edge in query.edges_into(subquery.id)}
        if subquery.instances == 1 and len(feeding) == 1:
            (group,) = feeding
            apart = query.scattered and group == group_of[0]
            if query.subqueries[groups[group][0]].instances == 1 and not apart:
                groups[group].append(subquery.id)
                group_of[subquery.id] = group
                continue
        group_of[subquery.id] = len(groups)
        groups.append([subquery.id])
    return replace(query, units=_stage_groups(query, groups, group_of))


def _stage_groups(
    query: CompiledQuery, groups: list[list[int]], group_of: dict[int, int]
) -> tuple[Unit, ...]:
    stages: list[int] = []
    taken: dict[int, int] = {}
    units = []
    for number, members in enumerate(groups):
        before = [
            stages[group_of[edge.from_subquery]]
            for member in members
            for edge in query.edges_into(member)
            if group_of[edge.from_subquery] != number
        ]
        stage = max(before, default=-1) + 1
        alone = query.scattered and 0 in members
        instances = 1 if alone else query.subqueries[members[0]].instances
        units.append(
            Unit(
                id=number,
                subqueries=tuple(members),
                instances=instances,
                stage=stage,
                first_task=taken.get(stage, 0),
            )
        )
        stages.append(stage)
        taken[stage] = taken.get(stage, 0) + instances
    return tuple(units)
