"""Everything that was compared, counted: what is the same, the justified differences, and what nobody expected.

In: Both. Out: a Summary. Keeps true: it is fine only if every difference is in KINDS, every kind occurred, and both
sides tell each transaction in the same order.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from bench.compare.capture import Both
from bench.compare.envelopes import Difference, compare, compare_messages, values_of
from bench.compare.kinds import KINDS, Group
from bench.compare.pairing import disorder, messages, others, pairs, renamed_topics
from bench.compare.values import same
from bench.compare.workload import CORPUS

_TOPICS = {"transaction": "topic-transaction", "_progress": "topic-progress", "_schema": "topic-schema"}
_SHOWN = 160


@dataclass(slots=True)
class Summary:
    """What one run has shown."""

    ops: Counter[str] = field(default_factory=Counter)
    """Pairs of events, by operation."""
    values: int = 0
    same_values: int = 0
    awkward: int = 0
    """Values of the corpus of types that are not null."""
    same_awkward: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    unexplained: list[str] = field(default_factory=list)
    disordered: list[int] = field(default_factory=list)

    @property
    def absent(self) -> list[str]:
        """Kinds that are listed and did not occur: the list is not true any more."""
        return [name for name in KINDS if name not in self.kinds]

    @property
    def is_fine(self) -> bool:
        """Whether nothing has to be looked into."""
        return not (self.unexplained or self.disordered or self.absent)

    def count(self, difference: Difference) -> None:
        """One difference."""
        if difference.kind in KINDS:
            self.kinds[difference.kind] += 1
        else:
            shown = f"{difference.where}: {difference.ours!r:.{_SHOWN}} and {difference.theirs!r:.{_SHOWN}}"
            self.unexplained.append(shown)


def summary(both: Both) -> Summary:
    """Compare."""
    found = Summary()
    for pair in pairs(both):
        known = pair.ours or pair.theirs
        assert known is not None
        found.ops[known.op] += 1
        for ours, theirs in values_of(pair):
            found.values += 1
            found.same_values += same(ours, theirs)
            if pair.table[1] == CORPUS and ours is not None:
                found.awkward += 1
                found.same_awkward += same(ours, theirs)
        for difference in compare(pair, both.types):
            found.count(difference)
    for message in messages(both):
        found.ops["m"] += 1
        for difference in compare_messages(*message):
            found.count(difference)
    for topic, count in (others(both.ours) | others(both.theirs)).items():
        found.kinds[_TOPICS[topic]] = count
    found.kinds["topic-name"] = len(renamed_topics(both))
    found.disordered = disorder(both)
    return found


def page(found: Summary) -> str:
    """The counts in Markdown, as docs/DEBEZIUM.md has them."""
    told = ", ".join(f"{count:,} `{name}`" for name, count in sorted(found.ops.items()))
    share = 100 * found.same_values / max(1, found.values)
    lines = [
        f"{sum(found.ops.values()):,} pairs of records: {told}. {found.values:,} column values, {found.same_values:,}",
        f"of them ({share:.1f} %) the same JSON on both sides; of the {found.awkward:,} awkward values of every type, "
        f"{found.same_awkward:,}.",
        "Every difference is one of those below.",
    ]
    for group in Group:
        lines += ["", f"### {group.value[0].upper()}{group.value[1:]}", "", *_HEAD]
        lines += [
            f"| `{name}` | {found.kinds[name]:,} | {kind.what} | {kind.why} |"
            for name, kind in KINDS.items()
            if kind.group is group
        ]
    return "\n".join(lines) + "\n"


_HEAD = ("| kind | times | Debezium | Afterimage, or why |", "|---|---|---|---|")
