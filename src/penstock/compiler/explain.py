"""Explain a compiled query: as text, and as a Mermaid flowchart."""

from __future__ import annotations

from penstock.compiler.cost import query_costs
from penstock.plan.compiled import CompiledQuery, Edge, Subquery

_GRID_WAYS = {
    "row": "to the cells of their row",
    "column": "to the cells of their column",
    "cross": "to the cells of their row and column",
    "all": "to every instance",
}


def explain(query: CompiledQuery, *, mermaid: bool = False) -> str:
    """Return how a compiled query runs."""
    return (
        _mermaid(query)
        if mermaid
        else "\n".join([*_logical(query), *_subqueries(query), *_stages(query), *_costs(query)])
    )


def _logical(query: CompiledQuery) -> list[str]:
    lines = ["== Logical query =="]
    for number, node in enumerate(query.nodes):
        after = ", ".join(f"#{i}" for i in query.inputs[number])
        lines.append(f"#{number} {node.title}" + (f"  <- {after}" if after else ""))
    return lines


def _subqueries(query: CompiledQuery) -> list[str]:
    lines = ["", f"== Subqueries ({query.strategy}, {query.buckets} buckets) =="]
    for subquery in query.subqueries:
        lines.append(f"subquery {subquery.id}: {_instances(query, subquery)}")
        lines += [f"  in:  {_edge(query, edge)}" for edge in query.edges_into(subquery.id)]
        lines += [
            f"  run: #{number} {query.nodes[number].title}{_how(query, number)}"
            for number in subquery.operators
        ]
    return lines


def _how(query: CompiledQuery, number: int) -> str:
    note = query.nodes[number].note
    return f"  [{note}]" if note else ""


def _instances(query: CompiledQuery, subquery: Subquery) -> str:
    if query.scattered and subquery.id == 0:
        return "an instance in each of Spark's partitions"
    return f"{subquery.instances} instance{'s' if subquery.instances > 1 else ''}"


def _edge(query: CompiledQuery, edge: Edge) -> str:
    if edge.grid:
        how = _GRID_WAYS[edge.grid]
    elif edge.keys is None:
        how = "spread evenly"
    else:
        how = f"by bucket of {', '.join(edge.keys)}" if edge.keys else "to one instance"
    fused = query.unit_of(edge.from_subquery) == query.unit_of(edge.to_subquery)
    way = "passed in memory" if fused else f"shuffled {how}"
    return f"{_what(query, edge)} of #{edge.producer} from subquery {edge.from_subquery}, {way}"


def _what(query: CompiledQuery, edge: Edge) -> str:
    head = query.subqueries[edge.to_subquery].head
    return "partials" if head is not None and query.nodes[head].combines else "rows"


def _stages(query: CompiledQuery) -> list[str]:
    sizes = query.stage_sizes
    lines = ["", f"== One epoch: {len(sizes)} Spark stage{'s' if len(sizes) > 1 else ''} =="]
    for stage, tasks in enumerate(sizes):
        units = [unit for unit in query.units if unit.stage == stage]
        parts = ["+".join(f"subquery {s}" for s in unit.subqueries) for unit in units]
        lines.append(f"stage {stage}: {tasks} task{'s' if tasks > 1 else ''}: {'; '.join(parts)}")
    return lines


def _costs(query: CompiledQuery, nodes: int = 8) -> list[str]:
    lines = ["", f"== Cost model (StreamCloud XI, {nodes} machines) =="]
    for cost in query_costs(query, nodes):
        chosen = "  <- chosen" if cost.strategy == query.strategy else ""
        lines.append(f"{cost.strategy}: fan-out {cost.fan_out:g}, hops {cost.hops}{chosen}")
    return lines


def _mermaid(query: CompiledQuery) -> str:
    lines = ["flowchart LR"]
    for subquery in query.subqueries:
        lines.append(
            f'  subgraph s{subquery.id}["subquery {subquery.id}: {_instances(query, subquery)}"]'
        )
        for number in subquery.operators:
            title = query.nodes[number].title.replace('"', "'")
            lines.append(f'    s{subquery.id}n{number}["{title}"]')
        lines.append("  end")
        inside = set(subquery.operators)
        for number in subquery.operators:
            if number != subquery.head:
                lines += [
                    f"  s{subquery.id}n{i} --> s{subquery.id}n{number}"
                    for i in query.inputs[number]
                    if i in inside
                ]
    for edge in query.edges:
        head = query.subqueries[edge.to_subquery].head
        origin = f"s{edge.from_subquery}n{edge.producer}"
        lines.append(f"  {origin} ==>|{_what(query, edge)}| s{edge.to_subquery}n{head}")
    return "\n".join(lines)
