"""Recompute problems of up to 60 nodes and their least times, by a mixed integer program.

    python tests/strategy/recompute/generate.py      needs scipy, in tests/python/requirements-fixtures.txt

Writes problems.txt, which tests/strategy/recompute_solver_test.cc reads. HiGHS proves each least time.
"""

import pathlib
import random

import numpy
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_matrix

SHARES = (0.35, 0.55, 0.75, 0.9)  # of the bytes between a low peak and the highest


class Problem:
    def __init__(self, name, in_flight=1):
        self.name, self.in_flight = name, in_flight
        self.bytes, self.nodes, self.steps = [], [], []

    def node(self, seconds, inputs, sizes, may=True):
        outputs = list(range(len(self.bytes), len(self.bytes) + len(sizes)))
        self.bytes += sizes
        self.nodes.append((seconds, may, list(inputs), outputs))
        return outputs

    def backward(self, rng, takes_results):
        """A step for each node, last first, that takes some of its operands and results."""
        for number in reversed(range(len(self.nodes))):
            _, _, inputs, outputs = self.nodes[number]
            takes = [v for v in inputs if rng.random() < 0.7]
            takes += [v for v in outputs if rng.random() < takes_results]
            self.steps.append((rng.randint(5, 20), sorted(set(takes))))

    def text(self):
        lines = [f"problem {self.name} {self.in_flight} {len(self.bytes)} {len(self.nodes)} {len(self.steps)}"]
        lines.append(" ".join(map(str, self.bytes)))
        for seconds, may, inputs, outputs in self.nodes:
            lines.append(" ".join(map(str, [seconds, int(may), len(inputs), *inputs, len(outputs), *outputs])))
        for size, takes in self.steps:
            lines.append(" ".join(map(str, [size, len(takes), *takes])))
        return lines


def solve(problem, budget, least_peak=False):
    """The least seconds within a budget, or the least budget; None where it is not proven."""
    producer = {v: n for n, node in enumerate(problem.nodes) for v in node[3]}
    used = {v: producer[v] for v in producer}
    users = {v: [] for v in producer}
    for n, (_, _, inputs, _) in enumerate(problem.nodes):
        for v in set(inputs):
            used[v] = n
            users[v].append(n)
    steps, count = len(problem.steps), 0
    first, last = {}, {}
    for s, (_, takes) in enumerate(problem.steps):
        for v in takes:
            first.setdefault(v, s)
            last[v] = s
    rows, entries, lower, upper, integer, cost = [], [], [], [], [], []

    def variable(is_integer=False, price=0.0, most=1.0):
        integer.append(int(is_integer))
        cost.append(price)
        upper.append(most)
        return len(cost) - 1

    def at_most(terms, bound):
        for column, factor in terms:
            entries.append((len(rows), column, factor))
        rows.append(bound)

    may = [node[1] for node in problem.nodes]
    again = [variable(True, 0 if least_peak else node[0], 1.0 if node[1] else 0.0) for node in problem.nodes]
    made = [[variable(most=1.0 if may[n] else 0.0) for _ in range(steps)] for n in range(len(problem.nodes))]
    room = variable(price=1.0, most=1e9) if least_peak else None
    for n in range(len(problem.nodes)):
        if not may[n]:
            continue
        outputs = problem.nodes[n][3]
        taken = min((first[v] for v in outputs if v in first), default=steps)
        behind = sorted({u for v in outputs for u in users[v] if may[u]})
        for s in range(steps):
            at_most([(made[n][s], 1), (again[n], -1)], 0)
            if s > 0:
                at_most([(made[n][s - 1], 1), (made[n][s], -1)], 0)
            if s >= taken:
                at_most([(again[n], 1), (made[n][s], -1)], 0)
            else:
                at_most([(made[n][s], 1)] + [(made[u][s], -1) for u in behind], 0)
            for u in behind:
                at_most([(made[u][s], 1), (again[n], 1), (made[n][s], -1)], 1)
        at_most([(again[n], 1), (made[n][steps - 1], -1)], 0)
    kept = {}
    for v in producer:
        kept[v] = variable()
        p = producer[v]
        if v in first:
            at_most([(again[p], -1), (kept[v], -1)], -1)
        for u in users[v]:
            at_most([(again[u], 1), (again[p], -1), (kept[v], -1)], 0)
    others = [(kept[v], problem.bytes[v] * (problem.in_flight - 1)) for v in kept if problem.in_flight > 1]
    limit = [(room, -1)] if least_peak else []
    for n in range(len(problem.nodes)):
        there = sum(problem.bytes[v] for v in producer if producer[v] <= n <= used[v])
        waiting = [(kept[v], problem.bytes[v]) for v in producer if producer[v] <= n and used[v] < n]
        at_most(waiting + others + limit, (0 if least_peak else budget) - there)
    for s, (size, _) in enumerate(problem.steps):
        there = []
        for v in producer:
            p = producer[v]
            alive = variable()
            there.append((alive, problem.bytes[v]))
            if v in last and last[v] >= s:
                at_most([(again[p], -1), (made[p][s], 1), (alive, -1)], -1)
                continue
            for u in users[v]:
                at_most([(again[u], 1), (made[u][s], -1), (again[p], -1), (made[p][s], 1), (alive, -1)], 0)
        at_most(there + others + limit, (0 if least_peak else budget) - size)
    matrix = coo_matrix(
        ([e[2] for e in entries], ([e[0] for e in entries], [e[1] for e in entries])), shape=(len(rows), len(cost))
    )
    found = milp(
        numpy.array(cost),
        integrality=numpy.array(integer),
        bounds=Bounds(0, numpy.array(upper)),
        constraints=LinearConstraint(matrix.tocsr(), -numpy.inf, numpy.array(rows, dtype=float)),
        options={"time_limit": 40 if least_peak else 60, "mip_rel_gap": 0.02 if least_peak else 1e-6},
    )
    if found.x is None or (found.status != 0 and not least_peak):
        return None
    return round(found.fun)


def highest(problem):
    """If nothing is computed again."""
    total = sum(problem.bytes) * problem.in_flight
    return total + max(size for size, _ in problem.steps)


def layers(rng, count, in_flight=1, alike=True):
    """Blocks with a connection around each, of products, norms and gates."""
    problem = Problem(f"layers_{count}{'' if alike else '_different'}{f'_{in_flight}' if in_flight > 1 else ''}", in_flight)
    (x,) = problem.node(3, [], [16])
    sizes = None
    for _ in range(count):
        if sizes is None or not alike:
            sizes = [rng.randint(8, 40) for _ in range(4)]
            times = [rng.randint(1, 40) for _ in range(5)]
        norm, mean = problem.node(times[0] % 5 + 1, [x], [16, 1])
        (wide,) = problem.node(times[1], [norm], [sizes[0]])
        (other,) = problem.node(times[2], [norm], [sizes[1]])
        (gate,) = problem.node(2, [wide, other], [sizes[2]])
        (back,) = problem.node(times[3], [gate], [16])
        (x,) = problem.node(1, [x, back], [16])
    problem.backward(random.Random(7), 0.5)
    return problem


def chain(rng, count):
    problem = Problem(f"chain_{count}")
    (x,) = problem.node(1, [], [20])
    for _ in range(count - 1):
        (x,) = problem.node(rng.randint(1, 30), [x], [rng.randint(4, 40)])
    problem.backward(rng, 0.4)
    return problem


def branches(rng, count):
    """Modules of several ways that come together, some of results that are made once."""
    problem = Problem(f"branches_{count}_{rng.randint(0, 999)}")
    (x,) = problem.node(2, [], [12])
    while len(problem.nodes) < count - 6:
        ends = [x]
        for _ in range(rng.randint(1, 3)):
            y = x
            for _ in range(rng.randint(1, 3)):
                (y,) = problem.node(rng.randint(1, 30), [y], [rng.randint(4, 30)], rng.random() < 0.9)
            ends.append(y)
        (x,) = problem.node(rng.randint(1, 4), ends, [rng.randint(8, 16)], rng.random() < 0.8)
    problem.backward(rng, 0.5)
    return problem


def main():
    rng = random.Random(5)
    problems = [chain(rng, 20), chain(rng, 40), chain(rng, 60), layers(rng, 4), layers(rng, 7), layers(rng, 9)]
    problems += [layers(rng, 5, alike=False), layers(rng, 8, alike=False), layers(rng, 4, in_flight=3)]
    problems += [branches(rng, size) for size in (20, 30, 40, 50, 60)]
    lines = []
    for problem in problems:
        low, high = solve(problem, 0, least_peak=True), highest(problem)
        if low is None:
            continue
        found = []
        for share in SHARES:
            budget = round(low + 2 + (high - low) * share * share)
            least = solve(problem, budget)
            print(problem.name, len(problem.nodes), "nodes", budget, least, flush=True)
            if least is not None and least > 0:
                found.append(f"{budget} {least}")
        if found:
            lines += problem.text() + [f"least {len(found)} " + " ".join(found)]
            pathlib.Path(__file__).with_name("problems.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
