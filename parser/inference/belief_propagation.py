"""Loopy belief propagation with global tree constraints (Smith & Eisner 2008)."""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass
from types import ModuleType
from typing import Any, ClassVar

import numpy as np

from cython_ext import bp
from parser.graph import CHILDSEQ, GRAND, LINK, NOCROSS, PAIR, SIB, GraphError, ScoredGraph
from parser.inference import nonprojective, projective
from parser.inference.arrays import as_batch, failure
from parser.inference.engine import Engine, Result

SCHEDULES = {"serial": bp.SERIAL, "parallel": bp.PARALLEL, "residual": bp.RESIDUAL}
DECODERS = {"probabilities": bp.BELIEFS, "log-odds": bp.LOG_ODDS, "mode": bp.INTO_TREE}
CONSTRAINTS = ("tree", "exactly1", "atmost1", "not2", "none")
NO2CYCLE = "+no2cycle"
LEAST: Mapping[str, float] = {"iterations": 1, "anneal": 0, "tolerance": 0.0, "scale": 0.0}
CHOICES: Mapping[str, tuple[str, ...]] = {
    "schedule": tuple(SCHEDULES),
    "constraint": (*CONSTRAINTS, *(name + NO2CYCLE for name in CONSTRAINTS[1:])),
    "trees": ("model", "projective", "nonprojective"),
    "nocross": ("heads", "joined"),
    "decode": tuple(DECODERS),
    "product": ("sum", "max"),
}
BYTES = {GRAND: 24, SIB: 24, CHILDSEQ: 16, PAIR: 32}  # of messages, for a part
BYTES_LIMIT = 4 * 2**30
NO_PAIRS = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)


@dataclass
class BeliefPropagation(Engine):
    """Approximate marginals of any mix of factors, and the tree of least expected error under them.

    Hard factors: one over all arcs (TREE or PTREE), or one for each word (EXACTLY1, ATMOST1), or
    for two arcs (NOT2, NO2CYCLE).  Soft ones: LINK, PAIR, GRAND, SIB, CHILDSEQ, NOCROSS.  Exact for
    LINK alone under a tree factor, and on any graph without loops.  Two arcs that are in no tree
    together by their ends alone are no factor: a grandparent that is its own grandchild or, under
    the projective tree factor, beyond it; two children of the root, if the tree factor wants one.

    An iteration takes O(n^3) over all arcs: O(n^3) for the tree factor and O(parts) for the others,
    whose parts pruning makes few.  With product=max the non-projective tree factor takes O(n^4).

    Parameters
    ----------
    iterations : int
        At most.
    schedule : {"serial", "parallel", "residual"}
        "serial": family by family, the tree factor last, and once before all.  "parallel": all
        messages at once.  "residual": as "serial", but messages of pairs by priority.
    damping : float
        Share of the old in a new message, from 0 up to 1, in log-odds.
    pair_damping : float
        The same for messages of two arcs alone (GRAND, SIB, PAIR, NOT2, NO2CYCLE), as odds, which
        takes hardly any time.
    tolerance : float
        Iterations end when no belief changes by so much.
    constraint : str
        Hard factors in inference: "tree" (the graph's kind of trees; a single root if it has),
        "exactly1", "atmost1", "not2" or "none"; the latter also with "+no2cycle".
    nocross : {"heads", "joined"}
        Whether the head of a word is one variable to NOCROSS factors, for which each word must
        have exactly one; or, as Smith & Eisner have it, each factor holds EXACTLY1 of its words, of
        which there are then n - 1 copies that all count.
    trees : {"model", "projective", "nonprojective"}
        What is decoded: trees of the graph's kind, or of another.
    decode : {"probabilities", "log-odds", "mode"}
        The maximum spanning tree over beliefs (most expected correct heads) or their log-odds (as
        Smith & Eisner do), or the best tree of the tree factor alone, given what comes into it.
    product : {"sum", "max"}
    anneal : int
        So many times, all scores are doubled and iterations go on from the messages so far.
    scale : float
        Scores are multiplied by it, besides what makes them log potentials: over 1, beliefs are
        sharper than they should be and the tree is nearer to the best, below 1 the reverse.
    """

    iterations: int = 10
    schedule: str = "serial"
    damping: float = 0.0
    pair_damping: float = 0.0
    tolerance: float = 1e-4
    constraint: str = "tree"
    nocross: str = "heads"
    trees: str = "model"
    decode: str = "probabilities"
    product: str = "sum"
    anneal: int = 0
    scale: float = 1.0

    choices: ClassVar = CHOICES
    least: ClassVar = LEAST
    families = frozenset({LINK, PAIR, GRAND, SIB, CHILDSEQ, NOCROSS})
    constraints = frozenset({False, True})
    name = "bp"

    def __post_init__(self) -> None:
        for key, allowed in self.choices.items():
            if getattr(self, key) not in allowed:
                raise ValueError(f"{key}: one of {', '.join(allowed)}, got {getattr(self, key)!r}")
        for key, low in self.least.items():
            if not getattr(self, key) >= low:
                raise ValueError(f"{key}: {low} or more, got {getattr(self, key)}")
        for key in ("damping", "pair_damping"):
            if not 0.0 <= getattr(self, key) < 1.0:
                raise ValueError(f"{key}: from 0 up to 1, got {getattr(self, key)}")
        if self.damping and self.pair_damping:
            raise ValueError("damping is of all messages, pair_damping of some; one of them")

    @property
    def has_marginals(self) -> bool:
        """Not with product=max, whose beliefs only rank."""
        return self.product == "sum"

    def calibrated(self, scale: float) -> Engine:
        engine = copy(self)
        engine.scale = self.scale * scale
        return engine

    def best(self, graph: ScoredGraph) -> Result:
        """heads (n+1,) int32, their score, and the beliefs in arcs that led to them.

        Ties go to the lowest head.

        Raises
        ------
        GraphError
            For a family that has no factor here, or messages that would take over 4 GiB.
        ValueError
            For a score that is not finite.
        NoTreeError
            If the candidate arcs hold no tree of the kind that inference or decoding wants.
        """
        messages, found = self._propagate(graph, self.scale)
        heads = messages.decode(DECODERS[self.decode], self._projective(graph), graph.single_root)
        if heads is None:
            heads = self._decode(graph, messages, found["marginals"])  # says why not
        return Result(heads, graph.score(heads), **found)

    def expectations(self, graph: ScoredGraph) -> Result:
        """Bethe log Z, beliefs in arcs (arcs,) and of factors (parts,), of scores as they are.

        Of CHILDSEQ the belief that two children are adjacent, of NOCROSS that two words' arcs
        cross.  Parts of arcs that are in no tree together have belief 0.  `scale` is the decoder's.
        Errors as for `best`.
        """
        messages, found = self._propagate(graph)
        beliefs = {family: np.zeros(len(scores)) for family, scores in graph.parts.items()}
        log_z = messages.answers(*map(beliefs.get, (GRAND, SIB, PAIR, CHILDSEQ, NOCROSS)))
        return Result(log_z=log_z, part_marginals=beliefs, **found)

    def k_best(self, graph: ScoredGraph, k: int) -> list[Result]:
        """The k best trees of the final tree factor, best first by it; scores are the graph's."""
        final = self._final_factor(graph)
        heads, _ = self._functions(graph).k_best(final.matrix(), k, single_root=graph.single_root)
        return [Result(tree, graph.score(tree)) for tree in np.asarray(heads)]

    def sample(self, graph: ScoredGraph, size: int, rng: np.random.Generator) -> np.ndarray:
        """Trees from the final tree factor, (size, n+1) int32 heads."""
        final = self._final_factor(graph)
        heads, _ = self._functions(graph).sample(
            final.matrix(), size, seed=rng, single_root=graph.single_root
        )
        return heads

    # ---- inside --------------------------------------------------------------------------------

    def _projective(self, graph: ScoredGraph) -> bool:
        """Whether projective trees are decoded."""
        return graph.projective if self.trees == "model" else self.trees == "projective"

    def _functions(self, graph: ScoredGraph) -> ModuleType:
        return projective if self._projective(graph) else nonprojective

    def _first_order(self, graph: ScoredGraph, weights: np.ndarray) -> ScoredGraph:
        return ScoredGraph(graph.arcs, weights, self._projective(graph), graph.single_root)

    def _decode(
        self, graph: ScoredGraph, messages: bp.BeliefPropagation, weights: np.ndarray
    ) -> np.ndarray:
        """heads (n+1,), by the beliefs ``weights`` or what `decode` has for them."""
        if self.decode != "probabilities":
            messages.log_odds(weights := np.empty(len(graph.scores)), self.decode == "mode")
        matrix = graph.spread(weights, -np.inf)
        return self._functions(graph).best_tree(matrix, single_root=graph.single_root)[0]

    def _final_factor(self, graph: ScoredGraph) -> ScoredGraph:
        messages, _ = self._propagate(graph.scaled(self.scale))
        messages.log_odds(weights := np.empty(len(graph.scores)), True)
        return self._first_order(graph, weights)

    def _propagate(
        self, graph: ScoredGraph, scale: float = 1.0
    ) -> tuple[bp.BeliefPropagation, dict[str, Any]]:
        """Run, with scaled scores; the kernel with its messages, and what every Result has."""
        self._check_usable(graph)
        done, change, messages = 0, 0.0, None
        for step in range(self.anneal + 1):
            warm, messages = messages, self._kernel(graph, 2.0**step * scale)
            if warm is not None:
                messages.take_messages(warm)
            ran, change = self._run(messages, graph)
            done += ran
        messages.beliefs(marginals := np.empty(len(graph.scores)))
        spent = dict(zip(bp.TIMES, messages.times(), strict=True))
        return messages, self._found(marginals, done, change, spent)

    def _check_usable(self, graph: ScoredGraph) -> None:
        """GraphError if there is no propagator for a factor, or no room for the messages."""
        self.check(graph)
        loose = self.constraint not in ("tree", "exactly1", "exactly1" + NO2CYCLE)
        if NOCROSS in graph.parts and self.nocross == "heads" and loose:
            raise GraphError(
                f"engine bp: with constraint={self.constraint} a word may have no head or several; "
                "factors nocross then need nocross=joined"
            )
        size = sum(BYTES.get(f, 0) * len(scores) for f, scores in graph.parts.items())
        if NOCROSS in graph.parts:
            size += 8 * (graph.n - 1) * len(graph.arcs)
        if size > BYTES_LIMIT:
            raise GraphError(
                f"the messages of {graph.n} words with {len(graph.arcs)} candidate arcs take "
                f"{size / 2**30:.1f} GiB; the limit is {BYTES_LIMIT / 2**30:.0f} GiB"
            )

    def _run(self, messages: bp.BeliefPropagation, graph: ScoredGraph) -> tuple[int, float]:
        """Iterations, and the largest change of a belief in the last."""
        ran = messages.run(
            SCHEDULES[self.schedule],
            self.iterations,
            self.damping,
            self.pair_damping,
            self.tolerance,
        )
        if ran is None:
            batch = as_batch(graph.matrix(), None, None)
            raise failure(batch, 0, graph.single_root, graph.projective)
        return ran

    def _found(
        self, marginals: np.ndarray, iterations: int, change: float, seconds: dict[str, float]
    ) -> dict[str, Any]:
        return {
            "marginals": marginals,
            "iterations": iterations,
            "converged": change < self.tolerance,
            "change": change,
            "seconds": seconds,
        }

    def _kernel(self, graph: ScoredGraph, scale: float = 1.0) -> bp.BeliefPropagation:
        first, second, theta = self._pairs(graph, scale)
        rule = self.constraint.removesuffix(NO2CYCLE)
        over_words = {"exactly1": bp.EXACTLY1, "atmost1": bp.ATMOST1}
        tree = bp.PTREE if graph.projective else bp.TREE
        return bp.BeliefPropagation(
            graph.arcs.layout,
            graph.scores,
            *map(graph.parts.get, (GRAND, SIB, CHILDSEQ, NOCROSS)),
            first,
            second,
            theta,
            tree if rule == "tree" else over_words.get(rule, bp.NONE),
            graph.single_root,
            self.nocross == "joined",
            self.product == "max",
            self.schedule == "residual" or self.damping > 0 or self.anneal > 0,
            scale,
        )

    def _pairs(
        self, graph: ScoredGraph, scale: float = 1.0
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Two arcs each and their scores: PAIR, then those that the constraint forbids."""
        if PAIR not in graph.parts and self.constraint in ("tree", "exactly1", "atmost1", "none"):
            return NO_PAIRS
        pairs = [np.zeros((2, 0), np.int32)]
        scores = [np.zeros(0)]
        if PAIR in graph.parts:
            pairs.append(graph.index(PAIR))
            scores.append(scale * graph.parts[PAIR])
        forbidden = []
        if self.constraint.startswith("not2"):
            forbidden.append(two_heads(graph))
        if self.constraint.endswith(NO2CYCLE):
            forbidden.append(two_cycles(graph))
        pairs += forbidden
        scores += [np.full(each.shape[1], -np.inf) for each in forbidden]
        both = np.concatenate(pairs, axis=1).astype(np.int32)
        first, second = map(np.ascontiguousarray, both)
        return first, second, np.concatenate(scores)


def two_heads(graph: ScoredGraph) -> np.ndarray:
    """Any two arcs into the same word, (2, pairs)."""
    return np.concatenate(
        [
            np.stack(np.triu_indices(end - start, 1)) + start
            for start, end in zip(graph.arcs.offsets[:-1], graph.arcs.offsets[1:], strict=True)
        ],
        axis=1,
    )


def two_cycles(graph: ScoredGraph) -> np.ndarray:
    """Two arcs between the same words, (2, pairs)."""
    heads, modifiers = graph.heads.astype(np.int64), graph.modifiers.astype(np.int64)
    width = graph.n + 1
    keys = modifiers * width + heads  # ascending
    back = np.searchsorted(keys, heads * width + modifiers)
    found = (heads < modifiers) & (back < len(keys))
    found[found] = keys[back[found]] == (heads * width + modifiers)[found]
    return np.stack([np.flatnonzero(found), back[found]])


BELIEF_PROPAGATION = BeliefPropagation()
