"""State machine: logs joined by routers against naive ones, with restarts in between."""

from __future__ import annotations

from random import Random

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.core.config import Discard, Durability, LogConfig
from headrace.core.inbound_route import Rule
from headrace.core.match import TagEq, TagPrefix

from .log_harness import drafts_of
from .naive import Record
from .routing import Net

LOGS = 4
numbers = st.integers(1, LOGS)
configs = st.builds(
    LogConfig,
    durability=st.sampled_from([Durability.DISK, Durability.DISK, Durability.EPHEMERAL]),
    cap_records=st.sampled_from([0, 0, 0, 2, 5]),
    discard=st.sampled_from([Discard.OLD, Discard.OLD, Discard.REJECT]),
)
rules = st.builds(
    Rule,
    keep_node=st.booleans(),
    keep_tag=st.booleans(),
    match=st.sampled_from([None, None, TagEq("a"), TagPrefix("a")]),
    allow_cycle=st.booleans(),
    exactly_once=st.booleans(),
)
TAGS = (None, "a", "ab", "b")
names = st.sampled_from(["p", "q", "r", "s"])


class RouteMachine(RuleBasedStateMachine):
    @initialize(configs=st.lists(configs, min_size=LOGS, max_size=LOGS))
    def create(self, configs: list[LogConfig]) -> None:
        self.net = Net(configs)

    @rule(number=numbers, drafts=drafts_of, show=st.booleans())
    def append(self, number: int, drafts: list[Record], show: bool) -> None:
        self.net.now_ms += 1
        self.net.append(number, drafts)
        if show:
            self.net.show(number)

    @rule(number=numbers)
    def show(self, number: int) -> None:
        self.net.show(number)

    @rule(number=numbers, before=st.integers(1, 30), tag=st.sampled_from([None, "a", "b"]))
    def delete(self, number: int, before: int, tag: str | None) -> None:
        self.net.delete(number, before, tag)

    @rule(number=numbers, config=configs)
    def configure(self, number: int, config: LogConfig) -> None:
        self.net.configure(number, config)

    @rule(
        name=names,
        ends=st.permutations(range(1, LOGS + 1)),
        rule=rules,
        after=st.sampled_from([None, None, 0, 3]),
    )
    def route(self, name: str, ends: list[int], rule: Rule, after: int | None) -> None:
        self.net.route(name, ends[0], ends[1], rule, after)

    @rule(name=names)
    def unroute(self, name: str) -> None:
        self.net.unroute(name)

    @rule(name=names)
    def begin_again(self, name: str) -> None:
        self.net.begin_again(name)

    @rule(name=names)
    def forward(self, name: str) -> None:
        if name in self.net.naive.routers:
            self.net.forward(name)

    @rule()
    def settle(self) -> None:
        """Everything goes where it can: in the end nothing moves, even in circles."""
        for _ in range(200):
            for number in self.net.state.logs:
                self.net.show(number)
            moved = [self.net.forward(name) for name in self.net.naive.routers]
            if not any(moved):
                return
        raise AssertionError("records go in circles")

    @rule(what=st.sampled_from(["sync", "rotate", "seal", "capture", "check_recovery"]))
    def keep(self, what: str) -> None:
        getattr(self.net, what)()

    @rule(seed=st.integers(0, 1 << 30))
    def live(self, seed: int) -> None:
        """Much happens at once: more than single steps would come to in a lifetime."""
        net, random = self.net, Random(seed)
        for _ in range(25):
            number = random.randint(1, LOGS)
            match random.choices(range(8), (30, 30, 4, 3, 8, 2, 10, 2))[0]:
                case 0:
                    drafts = [
                        Record(0, 0, b"%d" % random.randrange(999), tag=random.choice(TAGS))
                        for _ in range(random.choice((1, 1, 3)))
                    ]
                    self.append(number, drafts, show=random.random() < 0.8)
                case 1 if net.naive.routers:
                    net.forward(random.choice(list(net.naive.routers)))
                case 2:
                    net.delete(number, random.randint(1, 40), random.choice(TAGS))
                case 3:
                    cap, kept = random.choice((0, 0, 3)), random.random() < 0.7
                    durability = Durability.DISK if kept else Durability.EPHEMERAL
                    net.configure(number, LogConfig(durability=durability, cap_records=cap))
                case 4:
                    ends = random.sample(range(1, LOGS + 1), 2)
                    chosen = Rule(
                        match=random.choice((None, None, TagPrefix("a"))),
                        allow_cycle=random.random() < 0.7,
                        exactly_once=random.random() < 0.4,
                    )
                    name, after = random.choice("pqrs"), random.choice((None, 0, 2))
                    net.route(name, *ends, chosen, after)
                case 5:
                    random.choice((net.unroute, net.begin_again))(random.choice("pqrs"))
                case 6:
                    getattr(net, random.choice(("sync", "rotate", "seal", "capture", "capture")))()
                case 7:
                    net.check_recovery()
            net.check()

    @invariant()
    def agrees(self) -> None:
        if hasattr(self, "net"):
            self.net.check()


TestRoute = RouteMachine.TestCase
TestRoute.settings = settings(max_examples=150, stateful_step_count=20)
